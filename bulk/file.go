// Package bulk refunds what a CSV file lists: a cancelled event is ten thousand refunds.
//
// Its promises:
//
//   - Each line names the operation that was approved for it. Nothing here makes an operation id, so that a file that is read
//     again, by whoever, moves nothing twice: what was done is replayed.
//   - A run that was killed is continued by the same command. The results say what need not be asked again; what they say less
//     than the service knows is asked again, and they are never believed of another line than the one that they were written for.
//   - Memory is bounded by the concurrency, not by the file, nor by its results.
//   - A line with a fault is refused with its number, and is never sent; so is one whose operation was approved for another case.
package bulk

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"refundd/client"
)

// ErrFile reports a file that is none to refund from: nothing of it, or nothing further, was sent.
var ErrFile = errors.New("not a file of refunds")

// Line is a line of the file.
type Line struct {
	Number  int    // in the file, from 1, where the line begins
	CaseID  string // that the refund was approved for; empty where the line names none
	Request client.RefundRequest
	Fault   string // why it is not sent; empty where it can be
}

// The columns, of which the first three must be there.
var columns = []string{"operation_id", "order_id", "amount_cents", "case_id", "currency", "reason"}

const (
	required  = 3
	mostBytes = 1 << 20 // of a line; a quote that is never closed makes one of all that follows
	mostCents = 9007199254740991
)

// Lines reads a file line by line.
type Lines struct {
	csv    *csv.Reader
	bound  *bound
	places []int // of each column in a line; negative where there is none
	have   int   // columns
}

// ReadLines reads the header of a file. Columns are separated by commas, or by semicolons where the header has no
// comma, and come in any order; a byte order mark, blank lines and white space around values mean nothing. A column
// that is not known is refused: it may be a known one that is misspelt.
func ReadLines(r io.Reader) (*Lines, error) {
	in := bufio.NewReader(r)
	if mark, err := in.Peek(3); err == nil && bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = in.Discard(len(mark))
	}
	start, _ := in.Peek(in.Size())
	first, _, _ := bytes.Cut(bytes.TrimLeft(start, "\r\n\t "), []byte("\n"))
	l := &Lines{bound: &bound{r: in}}
	l.csv = csv.NewReader(l.bound)
	l.csv.ReuseRecord, l.csv.FieldsPerRecord, l.csv.TrimLeadingSpace = true, -1, true
	if !bytes.ContainsRune(first, ',') && bytes.ContainsRune(first, ';') {
		l.csv.Comma = ';'
	}
	header, err := l.record()
	if err != nil {
		return nil, fmt.Errorf("%w: it has no header: the first line names the columns %s", ErrFile,
			strings.Join(columns, ", "))
	}
	if first := strings.Join(header, ""); !utf8.ValidString(first) || strings.ContainsRune(first, 0) {
		return nil, fmt.Errorf("%w: it is not UTF-8: save it as CSV in UTF-8", ErrFile)
	}
	l.have = len(header)
	if err := l.place(header); err != nil {
		return nil, err
	}
	return l, nil
}

// place finds the columns.
func (l *Lines) place(header []string) error {
	for i, name := range header {
		header[i] = strings.TrimSpace(name)
		if !slices.Contains(columns, header[i]) {
			return fmt.Errorf("%w: the header has a column %.40q; known are %s, separated by commas, or by semicolons where it has no comma",
				ErrFile, header[i], strings.Join(columns, ", "))
		}
		if slices.Contains(header[:i], header[i]) {
			return fmt.Errorf("%w: the header has the column %s twice", ErrFile, header[i])
		}
	}
	for i, name := range columns {
		l.places = append(l.places, slices.Index(header, name))
		if i < required && l.places[i] < 0 {
			return fmt.Errorf("%w: the header has no column %s", ErrFile, name)
		}
	}
	return nil
}

// Next returns the next line, one with a Fault where it is not one to send, or io.EOF. Any other error ends the file.
func (l *Lines) Next() (Line, error) {
	for {
		fields, err := l.record()
		var parse *csv.ParseError
		switch {
		case errors.As(err, &parse) && !errors.Is(err, errTooLong):
			return Line{Number: parse.StartLine, Fault: "it is not a line of CSV: " + parse.Err.Error()}, nil
		case errors.Is(err, io.EOF):
			return Line{}, io.EOF
		case err != nil:
			return Line{}, fmt.Errorf("%w: %w", ErrFile, err)
		}
		number, _ := l.csv.FieldPos(0)
		if strings.TrimSpace(strings.Join(fields, "")) != "" {
			return l.line(number, fields), nil
		}
	}
}

func (l *Lines) record() ([]string, error) {
	l.bound.left = mostBytes
	return l.csv.Read()
}

// line is the line of those fields.
func (l *Lines) line(number int, fields []string) Line {
	value := func(i int) string {
		if at := l.places[i]; at >= 0 && at < len(fields) {
			return strings.Clone(strings.TrimSpace(fields[at]))
		}
		return ""
	}
	line := Line{Number: number, CaseID: value(3), Request: client.RefundRequest{
		OperationID: value(0), OrderID: value(1), Currency: value(4), Reason: value(5),
	}}
	cents, fault := amount(value(2))
	line.Request.AmountCents = cents
	switch {
	case len(fields) != l.have:
		fault = fmt.Sprintf("it has %d values where the header has %d", len(fields), l.have)
	case !utf8.ValidString(strings.Join(fields, "")):
		fault = "it is not UTF-8"
	case line.Request.OperationID == "":
		fault = "it has no operation_id: that is the id of the approval, and nothing makes one up"
	case line.Request.OrderID == "":
		fault = "it has no order_id"
	}
	line.Fault = fault
	return line
}

// amount reads an integer count of minor units, or says why it is none.
func amount(text string) (cents int64, fault string) {
	cents, err := strconv.ParseInt(text, 10, 64)
	switch {
	case text == "":
		return 0, "it has no amount_cents: there is no full amount by default"
	case strings.ContainsAny(text, ".,'eE") && strings.ContainsAny(text, "0123456789"):
		return 0, fmt.Sprintf("amount_cents is %.40q: write it as a whole number of minor units, 4990 for 49.90", text)
	case err != nil || text[0] == '+':
		return 0, fmt.Sprintf("amount_cents is %.40q, which is no whole number", text)
	case cents < 1 || cents > mostCents:
		return 0, fmt.Sprintf("amount_cents is %d, which is not between 1 and %d", cents, int64(mostCents))
	}
	return cents, ""
}

var errTooLong = fmt.Errorf("a line of more than %d bytes; is a quote not closed?", mostBytes)

// bound lets no line be longer than memory is to hold.
type bound struct {
	r    io.Reader
	left int
}

func (b *bound) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}
