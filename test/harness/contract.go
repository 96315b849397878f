package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// Document is api/openapi.yaml, found valid, its examples included.
var Document = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(Root(), "api", "openapi.yaml"))
	if err != nil {
		return nil, fmt.Errorf("load the contract: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("validate the contract: %w", err)
	}
	return doc, nil
})

// rules is the document as the filter gets it. For a 3.1 document it compiles a JSON Schema on every exchange, only to
// fall back on its built-in validator, which takes all that the contract uses; thirty times the price for the same
// verdict.
var rules = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := Document()
	if err != nil {
		return nil, err
	}
	plain := *doc
	plain.OpenAPI = "3.0.3"
	return &plain, nil
})

var filterOptions = func() *openapi3filter.Options {
	o := &openapi3filter.Options{
		AuthenticationFunc:    openapi3filter.NoopAuthenticationFunc,
		IncludeResponseStatus: true,
		MultiError:            true,
		SkipSettingDefaults:   true,
	}
	o.WithCustomSchemaErrorFunc(func(err *openapi3.SchemaError) string {
		return strings.Join(err.JSONPointer(), "/") + ": " + err.Reason
	})
	return o
}()

// exchange is a request that was sent and what it was answered with.
type exchange struct {
	request *http.Request
	body    []byte
	answer  Answer
}

// faults holds an exchange against the contract; valid says that the request is meant to be what the contract asks for.
// Whatever was executed must have been that, too.
func (x exchange) faults(valid bool) error {
	doc, err := rules()
	if err != nil {
		return err
	}
	path, params := findPath(doc, x.request.URL.EscapedPath())
	if path == "" {
		return x.holdAgainst(doc,
			&openapi3.Operation{Responses: only(http.StatusNotFound, doc.Components.Responses["NotFound"])})
	}
	item := doc.Paths.Value(path)
	operation := item.GetOperation(x.request.Method)
	if operation == nil {
		return x.holdAgainst(doc,
			&openapi3.Operation{Responses: only(http.StatusMethodNotAllowed,
				doc.Components.Responses["MethodNotAllowed"])})
	}
	input := x.input(doc, path, item, operation)
	input.PathParams = params
	if valid || x.answer.Status < 300 {
		err = openapi3filter.ValidateRequest(context.Background(), input)
	}
	return errors.Join(err, x.response(input))
}

func only(status int, response *openapi3.ResponseRef) *openapi3.Responses {
	return openapi3.NewResponses(openapi3.WithStatus(status, response))
}

// holdAgainst judges what no operation of the document answers.
func (x exchange) holdAgainst(doc *openapi3.T, operation *openapi3.Operation) error {
	return x.response(x.input(doc, "", &openapi3.PathItem{}, operation))
}

func (x exchange) input(doc *openapi3.T, path string, item *openapi3.PathItem,
	operation *openapi3.Operation) *openapi3filter.RequestValidationInput {
	r := x.request.Clone(context.Background())
	r.Body = http.NoBody
	if len(x.body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(x.body))
	}
	return &openapi3filter.RequestValidationInput{
		Request: r,
		Options: filterOptions,
		Route:   &routers.Route{Spec: doc, Path: path, PathItem: item, Method: r.Method, Operation: operation},
	}
}

func (x exchange) response(input *openapi3filter.RequestValidationInput) error {
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 x.answer.Status,
		Header:                 x.answer.Header,
		Body:                   io.NopCloser(bytes.NewReader(x.answer.Body)),
		Options:                filterOptions,
	})
}

// findPath is the document's path for an escaped one, and the parameters in it; a literal path wins over a template.
func findPath(doc *openapi3.T, escaped string) (string, map[string]string) {
	if doc.Paths.Value(escaped) != nil {
		return escaped, nil
	}
	for _, path := range doc.Paths.InMatchingOrder() {
		if params, ok := matchPath(path, escaped); ok {
			return path, params
		}
	}
	return "", nil
}

func matchPath(template, escaped string) (map[string]string, bool) {
	want, got := strings.Split(template, "/"), strings.Split(escaped, "/")
	if len(want) != len(got) {
		return nil, false
	}
	params := map[string]string{}
	for i, part := range want {
		if !strings.HasPrefix(part, "{") {
			if part != got[i] {
				return nil, false
			}
			continue
		}
		value, err := url.PathUnescape(got[i])
		if err != nil || got[i] == "" {
			return nil, false
		}
		params[strings.Trim(part, "{}")] = value
	}
	return params, true
}
