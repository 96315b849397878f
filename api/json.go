package api

import (
	"bytes"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"refundd/internal/terminal"
)

// Why a body is not what was documented.
var (
	errNotJSON       = malformed("The body is not valid JSON in UTF-8.")
	errNotObject     = malformed("The body is not a JSON object.")
	errDuplicateName = malformed("A member of the body occurs twice.")
	errUnknownName   = malformed("The body has an unknown member; names are case-sensitive.")
	errWrongType     = malformed("A value of the body has the wrong type.")
	errNotInteger    = malformed("A value of the body has the wrong type: " +
		"it must be an integer without fraction or exponent.")
	errNotText    = malformed("A value of the body has the wrong type: it must be a text.")
	errNotBool    = malformed("A value of the body has the wrong type: it must be true or false.")
	errNotList    = malformed("A value of the body has the wrong type: it must be a list.")
	errNotMembers = malformed("A value of the body has the wrong type: it must be an object.")
	errNUL        = malformed("A text of the body contains the character NUL.")
	errTruncated  = malformed("The body did not arrive completely.")
	errQuery      = malformed("The query is not well-formed.")
)

// malformed is the refusal of what can not be read; it says what is wrong without repeating what was sent.
func malformed(detail string) *rejection {
	return &rejection{code: codeMalformedRequest, detail: detail}
}

// at is the same refusal with the place of the fault, as far as it can be shown.
func (r *rejection) at(pointer string) *rejection {
	return &rejection{code: r.code, detail: r.detail, faults: []fault{{shown(pointer), faultInvalid}}}
}

// maxPointer is the longest pointer that an answer repeats, in bytes.
const maxPointer = 512

// shown is a pointer as far as it goes without what a terminal would act upon: names in it are the caller's.
func shown(pointer string) string {
	for pointer != "" && (len(pointer) > maxPointer || !isPrintable(pointer)) {
		pointer = pointer[:max(0, strings.LastIndexByte(pointer, '/'))]
	}
	return pointer
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

var strict = json.JoinOptions(json.RejectUnknownMembers(true))

// decode takes body as exactly one object of type T. An unknown, duplicate or differently cased member, trailing data,
// a wrong type, invalid UTF-8 and NUL are refused; null is an absent member.
func decode[T any](body []byte) (T, error) {
	var v, none T
	if hasNUL(body) {
		return none, errNUL.at(placeOfNUL(body))
	}
	if jsontext.Value(body).Kind() != jsontext.KindBeginObject {
		if !jsontext.Value(body).IsValid() {
			return none, errNotJSON.at("")
		}
		return none, errNotObject.at("")
	}
	if err := json.Unmarshal(body, &v, strict); err != nil {
		return none, refusalOf(err)
	}
	return v, nil
}

// refusalOf says what is wrong with a body, and where.
func refusalOf(err error) error {
	var syntax *jsontext.SyntacticError
	var meaning *json.SemanticError
	switch {
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return errDuplicateName.at(string(syntax.JSONPointer))
	case errors.As(err, &syntax):
		return errNotJSON.at(string(syntax.JSONPointer))
	case errors.As(err, &meaning) && errors.Is(err, json.ErrUnknownName):
		return errUnknownName.at(string(meaning.JSONPointer))
	case errors.As(err, &meaning):
		return wrongType(meaning.GoType).at(string(meaning.JSONPointer))
	}
	return errWrongType.at("")
}

// wrongType says what a value must be that is to be read as t.
func wrongType(t reflect.Type) *rejection {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return errWrongType
	case t == reflect.TypeFor[integer]():
		return errNotInteger
	}
	switch t.Kind() {
	case reflect.String:
		return errNotText
	case reflect.Bool:
		return errNotBool
	case reflect.Slice:
		return errNotList
	case reflect.Map, reflect.Struct:
		return errNotMembers
	default:
		return errWrongType
	}
}

// hasNUL tells whether a string of the body escapes NUL: Postgres can not store it. A raw NUL is no JSON anyway.
func hasNUL(body []byte) bool {
	for {
		i := bytes.IndexByte(body, '\\')
		if i < 0 || i+1 >= len(body) {
			return false
		}
		if bytes.HasPrefix(body[i+1:], []byte("u0000")) {
			return true
		}
		body = body[i+2:] // past what is escaped, which may be a backslash
	}
}

// placeOfNUL points to the first string that has one; where it is a name, to what the name is of.
func placeOfNUL(body []byte) string {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return ""
		}
		if token.Kind() == jsontext.KindString && strings.Contains(token.String(), "\x00") {
			return string(d.StackPointer())
		}
	}
}

// maxInteger is the largest integer that every JSON reader takes exactly (RFC 8259, section 6).
const maxInteger = 1<<53 - 1

// integer is a JSON number without fraction and exponent; one that is not 1 to maxInteger is kept as out of range.
type integer struct {
	value   int64
	inRange bool
}

// UnmarshalJSONFrom takes an integer of any size, and never through a float.
func (n *integer) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	if raw.Kind() != jsontext.KindNumber || bytes.ContainsAny(raw, ".eE") {
		return errWrongType
	}
	v, err := strconv.ParseInt(string(raw), 10, 64)
	n.inRange = err == nil && v >= 1 && v <= maxInteger
	n.value = v
	return nil
}

// wire writes maps in the order of their names, so that equal receipts are equal bytes, and never fails on a text.
var wire = json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true))

// encode writes v as JSON in which nothing drives the terminal of who looks at it.
func encode(v any) ([]byte, error) {
	raw, err := json.Marshal(v, wire)
	return terminal.Escape(raw), err
}

// timestamp is RFC 3339 in UTC, to the microsecond that the database keeps.
type timestamp time.Time

// AppendText writes all six digits: timestamps sort as texts.
func (t timestamp) AppendText(b []byte) ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z"), nil
}

func optionalTime(t *time.Time) *timestamp {
	if t == nil {
		return nil
	}
	return new(timestamp(*t))
}
