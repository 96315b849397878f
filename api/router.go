package api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"refundd/access"
)

// public is the scope of a route that asks for no key.
const public access.Scope = ""

// naming tells whether a route names an operation, of which a refusal must not say what it does not know.
type naming bool

const (
	namesOperation naming = true
	namesNone      naming = false
)

// route is one method of one path.
type route struct {
	method  string
	pattern string
	scope   access.Scope
	names   naming
	serve   endpoint
}

// router finds a route by the path as it was sent, which chi's own dispatch sees only where Go can not rebuild it.
type router struct {
	mux   *chi.Mux
	paths map[string]*path // by pattern
	fixed map[string]*path // those without parameters, which need no search
}

// path is all the methods of one pattern.
type path struct {
	pattern string
	methods map[string]*route
	names   naming // of any method
	allow   string // for 405
}

// match is what was found for a request: its path and its route, or neither, or a path that lacks the method.
type match struct {
	path   *path
	route  *route
	names  naming
	params chi.RouteParams
}

func newRouter(routes []route) router {
	rt := router{mux: chi.NewRouter(), paths: map[string]*path{}, fixed: map[string]*path{}}
	for _, r := range routes {
		p := rt.paths[r.pattern]
		if p == nil {
			p = &path{pattern: r.pattern, methods: map[string]*route{}}
			rt.paths[r.pattern] = p
			if !strings.Contains(r.pattern, "{") {
				rt.fixed[r.pattern] = p
			}
			rt.mux.Get(r.pattern, http.NotFound) // the mux only finds patterns; the method is looked up in the path
		}
		p.methods[r.method] = &r
		if r.scope == public && r.method == http.MethodGet {
			p.methods[http.MethodHead] = headOf(r) // probes ask so
		}
		p.names = p.names || r.names
	}
	for _, p := range rt.paths {
		p.allow = strings.Join(slices.Sorted(maps.Keys(p.methods)), ", ")
	}
	return rt
}

// headOf is the route that answers without a body, which the server leaves out.
func headOf(r route) *route {
	r.method = http.MethodHead
	return &r
}

func (rt router) find(r *http.Request) match {
	sent := sentPath(r.URL)
	p, params := rt.search(sent)
	if p == nil {
		return match{names: naming(namesUnknown(sent))}
	}
	m := match{path: p, route: p.methods[r.Method], names: p.names, params: params}
	if m.route != nil {
		m.names = m.route.names
	}
	return m
}

func (rt router) search(sent string) (*path, chi.RouteParams) {
	if p := rt.fixed[sent]; p != nil {
		return p, chi.RouteParams{}
	}
	found := chi.NewRouteContext()
	return rt.paths[rt.mux.Find(found, http.MethodGet, sent)], found.URLParams
}

// sentPath is the path as it was sent. RawPath is empty where escaping Path anew gives the very bytes that were sent.
func sentPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

func namesUnknown(sent string) bool {
	return strings.HasPrefix(sent, refundsPath+"/") || strings.HasPrefix(sent, "/v1/authorizations/")
}

// param is a path's parameter, unescaped once.
func (m match) param(name string) (string, bool) {
	for i := len(m.params.Keys) - 1; i >= 0; i-- {
		if m.params.Keys[i] == name {
			v, err := url.PathUnescape(m.params.Values[i])
			return v, err == nil
		}
	}
	return "", false
}

// operationID is the path's operation, where it has a well-formed one.
func (m match) operationID() string {
	if id, ok := m.param("operation_id"); ok && operationIDFault(id) == "" {
		return id
	}
	return ""
}

// refusal says why there is no route.
func (m match) refusal() error {
	if m.path == nil {
		return &rejection{code: codeNotFound}
	}
	return &rejection{code: codeMethodNotAllowed, allow: m.path.allow}
}

// label names the route in logs and metrics; all unknown paths share one.
func (m match) label() string {
	if m.path == nil {
		return "unknown"
	}
	return m.path.pattern
}

// method names the method in logs and metrics, where a route has it: what else a caller sends is not a label.
func (m match) method() string {
	if m.route == nil {
		return "other"
	}
	return m.route.method
}
