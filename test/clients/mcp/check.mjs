// Holds `refundd mcp` against clients that others wrote: the TypeScript SDK and the inspector's command line over both
// transports, and the protocol's conformance suite. REFUNDD is the program, URL and KEY are those of a running `refundd dev`.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import http from 'node:http'
import { createRequire } from 'node:module'
import { promisify } from 'node:util'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import Ajv from 'ajv/dist/2020.js'

const { REFUNDD, URL: SERVICE, KEY } = process.env
const env = { REFUNDD_API_KEY: KEY, REFUNDD_SERVER_URL: SERVICE }
const headers = { Authorization: `Bearer ${KEY}` }
const run = promisify(execFile)

const names = ['check_refund', 'escalate_to_human', 'find_orders', 'get_refund', 'process_refund', 'process_refunds', 'request_refund']
const reading = ['check_refund', 'find_orders', 'get_refund']

// What is called, and what it says: status, code where it is an error, money_moved. The prefix keeps cases of two runs apart.
const calls = (p) => [
  ['find_orders', { customer_email: 'ada@example.com' }, 'found  no'],
  ['find_orders', { customer_email: 'nobody@example.com' }, 'none_found  no'],
  ['find_orders', {}, 'refused invalid_arguments unknown'],
  ['check_refund', { case_id: p, order_id: 'A-1003', amount_cents: 100, reason_code: 'damaged' }, 'would_approve  no'],
  ['request_refund', { case_id: p, order_id: 'A-1003', amount_cents: 100, reason_code: 'damaged' }, 'approved  no'],
  ['get_refund', { case_id: p }, 'not_executed  no'],
  ['process_refund', { case_id: p }, 'processed  yes'],
  ['process_refund', { case_id: p }, 'already_processed  yes'],
  ['get_refund', { case_id: p }, 'succeeded  yes'],
  ['request_refund', { case_id: p, order_id: 'A-1003', amount_cents: 100, reason_code: 'damaged' }, 'approved  unknown'],
  ['request_refund', { case_id: p, order_id: 'A-1003', amount_cents: 200, reason_code: 'damaged' }, 'escalated  no'],
  ['request_refund', { case_id: p, order_id: 'nowhere', amount_cents: 1, reason_code: 'damaged' }, 'refused order_not_found no'],
  ['request_refund', { case_id: p, order_id: 'A-1003', amount_cents: '100', reason_code: 'damaged' }, 'refused invalid_arguments unknown'],
  ['process_refund', { case_id: `${p}-none` }, 'refused authorization_not_found no'],
  ['process_refund', { case_id: p, operation_id: 'mine' }, 'refused invalid_arguments unknown'],
  ['process_refunds', { case_ids: [p, `${p}-none`] }, 'partial_failure  yes'],
  ['process_refunds', { case_ids: [`${p}-none`] }, 'failed authorization_not_found no'],
  ['escalate_to_human', { case_id: p, trigger: 'outcome_unknown', summary: 'asked twice' }, 'escalated  unknown'],
  ['escalate_to_human', { case_id: p, trigger: 'bored' }, 'refused invalid_request unknown'],
]

// holds compares an answer with what it should say, and with the tool's own schema, errors too.
function holds(validate, [tool, args, want], result) {
  const said = result.structuredContent
  const what = `${tool} ${JSON.stringify(args)}: ${JSON.stringify(result)}`
  assert.ok(validate(said), `${what}: ${JSON.stringify(validate.errors)}`)
  assert.deepEqual(JSON.parse(result.content[0].text), said, what)
  assert.equal(`${said.status} ${said.code ?? ''} ${said.money_moved}`, want, what)
  assert.equal(result.isError === true, said.code !== undefined, what)
}

function schemas(tools) {
  const ajv = new Ajv({ strict: true, allowUnionTypes: true })
  assert.deepEqual(tools.map((t) => t.name).sort(), names)
  return Object.fromEntries(tools.map((t) => {
    ajv.compile(t.inputSchema)
    assert.equal(t.annotations.readOnlyHint === true, reading.includes(t.name), t.name)
    assert.equal(t.annotations.idempotentHint, true, t.name)
    return [t.name, ajv.compile(t.outputSchema)]
  }))
}

async function sdk(name, transport) {
  const client = new Client({ name: 'sdk', version: '1' })
  await client.connect(transport)
  const validate = schemas((await client.listTools()).tools)
  const all = calls(`sdk-${name}-${Date.now()}`)
  for (const call of all) holds(validate[call[0]], call, await client.callTool({ name: call[0], arguments: call[1] }))
  await assert.rejects(client.callTool({ name: 'pay_me', arguments: {} }), /pay_me/)
  await client.close()
  console.log(`TypeScript SDK over ${name}: ${all.length} calls, each as its schema says`)
}

async function inspector(name, target) {
  const cli = async (...args) => {
    const line = ['node_modules/.bin/mcp-inspector', '--cli', ...target, '--format', 'json', '-q', ...args]
    const done = await run('node', line, { env: { ...process.env, ...env } }).catch((e) => e) // isError has an exit code of its own
    assert.ok(done.stdout, `${args}: ${done.stderr}`)
    const said = JSON.parse(done.stdout)
    return said.result ?? said
  }
  const validate = schemas((await cli('--method', 'tools/list', '--strict')).tools)
  const all = calls(`cli-${name}-${Date.now()}`).filter((_, i) => [0, 4, 6, 7, 13, 14, 15].includes(i))
  for (const call of all) {
    const args = Object.entries(call[1]).map(([k, v]) => `${k}=${typeof v === 'string' ? v : JSON.stringify(v)}`)
    holds(validate[call[0]], call, await cli('--method', 'tools/call', '--tool-name', call[0], '--tool-arg', ...args))
  }
  console.log(`MCP inspector over ${name}: ${all.length} calls, each as its schema says`)
}

// The suite's servers have tools of its own making; these scenarios need none, and cover what a client meets first.
const scenarios = ['server-initialize', 'ping', 'tools-list', 'dns-rebinding-protection']

// The suite has no key: this puts one in.
function withKey(endpoint) {
  const to = new URL(endpoint)
  const proxy = http.createServer((req, res) => {
    const on = http.request({ host: to.hostname, port: to.port, path: to.pathname, method: req.method, headers: { ...req.headers, authorization: headers.Authorization } },
      (answer) => { res.writeHead(answer.statusCode, answer.headers); answer.pipe(res) })
    on.on('error', () => res.destroy())
    req.pipe(on)
  })
  return new Promise((resolve) => proxy.listen(0, '127.0.0.1', () => resolve(proxy)))
}

async function conformance(endpoint) {
  const proxy = await withKey(endpoint)
  const bin = createRequire(import.meta.url).resolve('@modelcontextprotocol/conformance/package.json').replace('package.json', 'dist/index.js')
  try {
    for (const scenario of scenarios) {
      const done = await run('node', [bin, 'server', '--url', `http://localhost:${proxy.address().port}/mcp`, '--scenario', scenario]).catch((e) => e)
      assert.ok(!done.code, `${scenario}: ${done.stdout}${done.stderr}`)
      console.log(`conformance ${scenario}: ${/Passed: .*/.exec(done.stdout)?.[0] ?? 'passed'}`)
    }
  } finally {
    proxy.close()
    proxy.closeAllConnections()
  }
}

function serve() {
  const server = spawn(REFUNDD, ['mcp', '--addr', '127.0.0.1:0'], { env: { REFUNDD_SERVER_URL: SERVICE }, stdio: ['ignore', 'inherit', 'pipe'] })
  return new Promise((resolve, reject) => {
    let log = ''
    server.on('exit', (code) => reject(new Error(`refundd mcp exits ${code}: ${log}`)))
    server.stderr.on('data', (text) => {
      const addr = /"msg":"serving tools".*"addr":"([^"]+)"/.exec(log += text)
      if (addr) resolve([server, `http://${addr[1]}/mcp`])
    })
  })
}

const [server, endpoint] = await serve()
try {
  await sdk('stdio', new StdioClientTransport({ command: REFUNDD, args: ['mcp'], env, stderr: 'ignore' }))
  await sdk('http', new StreamableHTTPClientTransport(new URL(endpoint), { requestInit: { headers } }))
  await inspector('stdio', ['-e', `REFUNDD_API_KEY=${KEY}`, '-e', `REFUNDD_SERVER_URL=${SERVICE}`, REFUNDD, 'mcp'])
  await inspector('http', [endpoint, '--transport', 'http', '--header', `Authorization: Bearer ${KEY}`])
  await conformance(endpoint)
} finally {
  server.removeAllListeners('exit')
  server.kill()
}
