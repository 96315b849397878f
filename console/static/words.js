// What states, codes and answers mean, for a person who has never seen refundd.

export const states = {
  reserved: ['Outcome unknown', 'The money is held. The provider was asked and has not told what became of it; refundd keeps finding out.'],
  pending: ['Accepted, not final', 'The money is held. The provider accepted the refund and has not said its last word.'],
  succeeded: ['Paid back', 'The money went to the customer.'],
  failed: ['Not paid', 'The customer did not get the money, or it came back.'],
  needs_attention: ['Waits for a person', 'The money is held. refundd cannot find out by itself what became of it.'],
};

export const stateName = (state) => states[state]?.[0] ?? state;

// failures say why a refund failed or waits, and what a person does about it.
export const failures = {
  provider_contradictory: ['The provider’s books show several refunds for this operation, or one of another amount or currency.',
    'Compare the refunds that the timeline lists with the provider’s dashboard. Decide “Paid” if the customer has this amount at least once, and have the provider take back what is too much.'],
  provider_key_expired: ['The provider’s books show no such refund, and it is too late to send it again: the provider may have forgotten the key that makes a repetition harmless.',
    'Look for refunds of this payment in the provider’s own dashboard. None of this amount: decide “Not paid”. One of this amount: decide “Paid”.'],
  outcome_overdue: ['The outcome stayed unknown for longer than refundd waits.',
    'Ask the provider’s support about this refund, by its key or its payment, and decide what they confirm.'],
  paid_after_failure: ['It was recorded as not paid, and now the provider shows it as paid. The money is held again.',
    'Check in the provider’s dashboard that it is paid. If so, decide “Paid”.'],
  over_refund: ['The provider paid it although it goes beyond what the order captured.',
    'The money is gone: decide “Paid”, so that the books count it. The excess stays on the order and in the audit until the capture covers it; getting it back is between you, the provider and the customer.'],
  late_failure: ['It had been paid, and came back later.', ''],
  resolved_failed: ['A person decided that it was not paid.', ''],
  insufficient_funds: ['The merchant’s balance at the provider did not cover it.', ''],
  charge_disputed: ['The payment is disputed.', ''],
  expired_or_canceled_card: ['The customer’s card is expired or cancelled.', ''],
  lost_or_stolen_card: ['The customer’s card is reported lost or stolen.', ''],
  unknown_payment: ['The provider does not know the payment.', ''],
  already_refunded: ['The provider says that the payment was refunded already.', ''],
  amount_exceeds_unrefunded: ['The provider says that less than this is left of the payment.', ''],
  refund_failed: ['The provider accepted it first, and it failed then.', ''],
  declined: ['The provider declined it and gave no further reason.', ''],
};

export const why = (code) => failures[code]?.[0] ?? (code ? `The reason is ${code}.` : '');
export const advice = (code) => failures[code]?.[1] ?? '';

// problems say what an answer that refuses means here, and what to do next.
const problems = {
  unreachable: ['refundd does not answer', 'Nothing reached the service, or its answer was lost. Sending the same again is safe.'],
  unauthenticated: ['The key is not valid any more', 'Type a valid key; what you have written stays here.'],
  forbidden: ['This key may not do that', 'Ask for a key with the scope, or for somebody who has one.'],
  not_found: ['There is nothing of that id', 'It may belong to another tenant, or be misspelt.'],
  refund_not_found: ['No refund has this id yet', 'It was never executed, was withdrawn, or the id is misspelt. An attempt may be on its way.'],
  order_not_found: ['There is no such order', 'Check the id, upper and lower case included.'],
  authorization_not_found: ['Nobody approved this', 'Check the id, or approve it first.'],
  operation_in_progress: ['Somebody works on it right now', 'A call, reconciliation or another person has it, or it was sent so recently that the provider’s books may not show it yet. Nothing was changed. Wait the time it says and try again.'],
  provider_disagrees: ['The provider’s books say otherwise', 'refundd has just asked the provider, and what it shows contradicts this decision. Nothing was changed. The timeline below shows what the provider showed; reconciliation records what is proven.'],
  resolution_conflict: ['It was decided already', 'Somebody else, or reconciliation, was first. Nothing of yours was recorded; below is how it stands now.'],
  provider_unavailable: ['The provider cannot be asked', 'Its books could not be read, so nothing was decided. Wait, or override if you know the outcome from the provider itself.'],
  operation_needs_attention: ['It waits for a person', 'Decide it below.'],
  operation_id_conflict: ['This id names another approval already', 'Nothing was changed. Start a new form: it has a new id.'],
  authorization_revoked: ['It was withdrawn', 'A withdrawn approval is never taken back; approve anew.'],
  already_executed: ['It was executed already', 'An executed refund cannot be withdrawn.'],
  currency_mismatch: ['The currency is not the order’s', 'Nothing was changed.'],
  escalation_not_approvable: ['This decision does not fit the case', 'It is decided already, its order cannot cover the amount any more, or your key is the one that asked: somebody else has to decide.'],
  too_many_matches: ['More than 200 match', 'Search for something narrower: nothing is shown rather than a part.'],
  rate_limited: ['This key asked too often', 'It goes on by itself in a moment.'],
  overloaded: ['refundd has too much to do', 'Nothing was changed by this call. It is tried again.'],
  database_unavailable: ['refundd cannot reach its database', 'Nothing can be read or decided until it can.'],
  deadline_exceeded: ['It took too long', 'Whether it was done is not known: look again before you repeat it. The same again is safe.'],
  internal: ['Something went wrong in refundd', 'Tell its operators the reference.'],
  no_problem: ['Something between here and refundd answered', 'A proxy or load balancer; refundd itself said nothing.'],
};

export const problemWords = (p) => problems[p.code] ?? [p.title || p.code, p.detail];

const pointers = { required: 'is missing', invalid: 'is not valid', out_of_range: 'is out of range', too_long: 'is too long', mismatch: 'does not match' };

export const faultWords = ({ pointer, code }) => `${pointer.replace(/^\/|^\w+:/, '')} ${pointers[code] ?? code}`;

export const errorKinds = {
  not_sent: 'nothing reached the provider',
  unknown: 'no answer: it may have happened',
  misconfigured: 'our credentials were refused, or the provider is not set up',
  not_found: 'its books show no such refund',
  contradictory: 'its books show several refunds, or another one',
  not_ours: 'it named a refund that settles another operation',
};

export const outcomes = { succeeded: 'paid', pending: 'accepted, not final', declined: 'not paid' };

export const layers = {
  model_transport: 'model transport', agent_loop: 'agent loop', tool_transport: 'tool transport', business: 'business', other: 'other layer',
};

export const triggers = {
  asked_for_human: 'The customer asked for a person', repeated_request: 'The case asks again for this order',
  policy_silent: 'No rule covers it', policy_ambiguous: 'Several rules cover it', beyond_limit: 'More than the rule may approve',
  beyond_window: 'Later than the rule allows', beyond_refundable: 'More than the order can give back',
  operation_open: 'A refund of the order has no end yet', needs_attention: 'A refund’s outcome is not known',
  tool_failure: 'A tool failed', outcome_unknown: 'An agent could not learn what became of a refund', other: 'Another reason',
  violence_threat: 'Threat of violence', self_harm: 'Self-harm', fraud_allegation: 'Allegation of fraud',
  legal_or_regulatory: 'Legal or regulatory', harassment: 'Harassment',
};
