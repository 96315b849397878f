"""A tool handler on the standard library: it executes the refund that was approved in a case."""

import json
import os
import random
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

URL, KEY = os.environ["REFUNDD_URL"], os.environ["REFUNDD_API_KEY"]
ATTEMPTS, DEADLINE, PATIENCE = 3, 30.0, 5.0  # requests that may refund; seconds in all; seconds for one answer


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the key goes to refundd and nowhere else."""

    def redirect_request(self, *_):
        return None


OPENER = urllib.request.build_opener(NoRedirect)


def ask(method, path, body=None, attempt=1):
    """Returns status and JSON of one exchange; (0, {}) where no whole answer came, which says nothing of the refund."""
    request = urllib.request.Request(URL + path, method=method, data=None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", "Bearer " + KEY)
    request.add_header("Content-Type", "application/json")
    request.add_header("Refund-Attempt-Layer", "tool_transport")
    request.add_header("Refund-Attempt", str(attempt))
    try:
        try:
            with OPENER.open(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            return refusal.code, json.load(refusal)
    except (OSError, ValueError, urllib.error.URLError):
        return 0, {}


def told(answer, status=None):
    names = ("money_moved", "next_action", "amount_cents", "currency", "code")
    return {"status": status or answer["status"], **{n: answer[n] for n in names if n in answer}}


def unknown(code):
    return {"status": "refused", "money_moved": "unknown", "next_action": "escalate_to_human", "code": code}


def refund_case(case_id):
    status, found = until_answered("/v1/authorizations?case_id=" + urllib.parse.quote(case_id, safe=""))
    if status != 200:
        return told(found, "refused") if found else unknown("service_unavailable")
    if found["count"] != 1:  # none, or several: a person says which one is meant; never guess
        return {**unknown("ambiguous_case"), "next_action": "ask_for_identifier"}
    approved = found["data"][0]
    body = {name: approved[name] for name in ("operation_id", "order_id", "amount_cents")}
    path = "/v1/refunds/" + urllib.parse.quote(approved["operation_id"], safe="")
    end = time.monotonic() + DEADLINE
    for attempt in range(1, ATTEMPTS + 1):
        status, answer = ask("POST", "/v1/refunds", body, attempt)
        if status in (200, 201, 202):  # an earlier call moved the money, this one did, or it is not known yet
            return told(answer)
        if status and not answer.get("isRetryable"):
            return told(answer, "refused")
        if not status:  # no answer is not "it did not happen": look it up before it is sent again
            status, row = ask("GET", path)
            if status == 200 and row["state"] in ("succeeded", "reserved", "pending"):
                return told(row, "already_processed" if row["state"] == "succeeded" else "pending")
        wait = answer.get("retry_after_seconds") or min(0.5 * 2 ** (attempt - 1), 8) * (1 - 0.25 * random.random())
        if time.monotonic() + wait >= end:
            break
        time.sleep(wait)
    return told(answer, "refused") if answer else unknown("service_unavailable")


def until_answered(path):
    for attempt in range(1, ATTEMPTS + 1):
        status, answer = ask("GET", path, attempt=attempt)
        if status and not (status >= 500 and attempt < ATTEMPTS):
            return status, answer
        time.sleep(0.5)
    return 0, {}


if __name__ == "__main__":
    print(json.dumps(refund_case(sys.argv[1])))
