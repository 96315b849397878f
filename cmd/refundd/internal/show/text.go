package show

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"refundd/operations"
)

// field is one member of a row, in the table's order.
type field struct{ name, value string }

// line is one thing that happened.
type line struct{ at, text string }

// moment is the line's time: as texts, times of different precision do not sort.
func (l line) moment() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, l.at) // created_at is never null nor infinite
	return at
}

// Print writes a record for a person: what is true first, then the rows, then what happened in its order.
func Print(w io.Writer, r Record) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(out, "Operation %s of tenant %s: %s\n", r.OperationID, r.TenantID, headline(r))
	if r.Warning != nil {
		_, _ = fmt.Fprintf(out, "WARNING: %s\n", *r.Warning)
	}
	for _, part := range []struct {
		title, absent string
		row           jsontext.Value
	}{
		{"Authorization", "none: nobody approved it", r.Authorization},
		{"Operation", "none: neither executed nor withdrawn", r.Operation},
		{"Order", "none", r.Order},
	} {
		fields, err := readFields(part.row)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "\n%s\n", part.title)
		if len(fields) == 0 {
			_, _ = fmt.Fprintf(out, "  %s\n", part.absent)
		}
		for _, f := range fields {
			_, _ = fmt.Fprintf(out, "  %s\t%s\n", f.name, f.value)
		}
	}
	printView(out, r)
	if err := printTimeline(out, r); err != nil {
		return err
	}
	return out.Flush()
}

// headline says where the operation stands and what that means for the money.
func headline(r Record) string {
	stands := member(r.Operation, "state")
	switch {
	case stands != "":
	case r.Expired:
		stands = "approved, expired before it was executed"
	default:
		stands = "approved, not executed"
	}
	return fmt.Sprintf("%s, money moved: %s", stands, r.moneyMoved())
}

// moneyMoved is what the rows say of the money.
func (r Record) moneyMoved() operations.MoneyMoved {
	if state := member(r.Operation, "state"); state != "" {
		return operations.State(state).MoneyMoved()
	}
	return operations.MovedNo
}

// printTimeline lists transfers and events by time.
func printTimeline(out io.Writer, r Record) error {
	lines := make([]line, 0, len(r.Transfers)+len(r.Events))
	for _, t := range r.Transfers {
		text := fmt.Sprintf("transfer %s\t%s to %s, %s %s", member(t, "kind"), member(t, "debit_account"),
			member(t, "credit_account"), member(t, "amount_cents"), member(t, "currency"))
		lines = append(lines, line{member(t, "created_at"), text})
	}
	for _, e := range r.Events {
		fields, err := readFields(e)
		if err != nil {
			return err
		}
		lines = append(lines, line{member(e, "created_at"), "event " + member(e, "kind") + "\t" + told(fields)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.moment().Compare(b.moment()) })
	_, _ = fmt.Fprint(out, "\nTimeline (UTC)\n")
	if len(lines) == 0 {
		_, _ = fmt.Fprint(out, "  empty: no money moved\n")
	}
	for _, l := range lines {
		_, _ = fmt.Fprintf(out, "  %s\t%s\n", l.at, l.text)
	}
	return nil
}

// told lists what an event tells besides its key, kind and time.
func told(fields []field) string {
	var words []string
	for _, f := range fields {
		switch f.name {
		case "tenant_id", "operation_id", "kind", "created_at":
			continue
		}
		if f.value != "-" && f.value != "{}" {
			words = append(words, f.name+"="+f.value)
		}
	}
	return strings.Join(words, " ")
}

// member is one member of a row, "" where there is none.
func member(row jsontext.Value, name string) string {
	fields, _ := readFields(row) // what can not be read was reported where the row was printed
	for _, f := range fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// readFields answers a row's members in order; none for null.
func readFields(row jsontext.Value) ([]field, error) {
	if row.Kind() == 'n' {
		return nil, nil
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(row))
	if _, err := decoder.ReadToken(); err != nil {
		return nil, fmt.Errorf("read row: %w", err)
	}
	var fields []field
	for decoder.PeekKind() == '"' {
		name, err := decoder.ReadToken()
		if err != nil {
			return nil, fmt.Errorf("read row: %w", err)
		}
		text := name.String()
		value, err := decoder.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("read row: %w", err)
		}
		fields = append(fields, field{text, display(text, value)})
	}
	return fields, nil
}

// display is a value for a terminal: times end in Z, and what a terminal would act upon is quoted.
func display(name string, value jsontext.Value) string {
	switch value.Kind() {
	case 'n':
		return "-"
	case '"':
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return value.String()
		}
		if strings.HasSuffix(name, "_at") || strings.HasSuffix(name, "_until") || strings.HasSuffix(name, "_ended") {
			text = strings.Replace(text, "+00:00", "Z", 1)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return strconv.QuoteToASCII(text)
		}
		return text
	}
	return value.String()
}
