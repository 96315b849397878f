// Package escalations decides which refunds an agent asks for are approved by policy, and keeps the queue of those that
// wait for a person.
//
// Its promises:
//
//   - The same facts always give the same decision, and the decision is stored with the rule that made it and the
//     version of the policy. What was written in free text, its mood, and how sure anybody is of it are no facts.
//   - An explicit wish for a person comes before everything else, then a category, each of which has a queue of its
//     own.
//   - Approving mints an authorization in the transaction that decides; its id is the operation id.
//   - A case asks for a refund of an order once, by constraint: asked again it is answered the first decision.
//   - A case in front of people ends by exactly one decision, whoever clicks how often.
//   - An operation that needs attention has an open escalation from the transaction that says so until the one that
//     settles it.
//   - Only policy decides how soon a queue is looked at, and only the database's clock whether that is over.
package escalations
