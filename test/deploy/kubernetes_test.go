//go:build deploy

package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"refundd/test/harness"
)

// kubernetes is the release whose OpenAPI documents the manifests are held against.
const kubernetes = "k8s.io/kubernetes@v1.34.4"

// object is one of the manifests.
type object struct {
	file             string
	kind, apiVersion string
	name             string
	fields           map[string]any
}

// TestKubernetes_ManifestsAreWhatItsSchemaSays, in which a member that there is not is a fault.
func TestKubernetes_ManifestsAreWhatItsSchemaSays(t *testing.T) {
	s := schemasOf(t)
	for _, o := range manifests(t) {
		if err := s.judge(t, o); err != nil {
			t.Errorf("%s: %s %s: %v", o.file, o.kind, o.name, err)
		}
	}
	// The check can fail.
	for what, spoil := range map[string]func(spec map[string]any){
		"a misspelt member":   func(spec map[string]any) { spec["concurencyPolicy"] = "Forbid" },
		"a value of no kind":  func(spec map[string]any) { spec["startingDeadlineSeconds"] = "soon" },
		"what is needed gone": func(spec map[string]any) { delete(spec, "schedule") },
	} {
		o := find(t, "CronJob", "refundd-reconcile")
		spoil(o.fields["spec"].(map[string]any))
		if s.judge(t, o) == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// schemas are the OpenAPI documents of a Kubernetes release, by their file's name.
type schemas struct {
	compiler *jsonschema.Compiler
	kinds    map[string]string // by apiVersion and kind: where its schema is
}

func schemasOf(t *testing.T) schemas {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module schemas\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", kubernetes)
	download.Dir = dir
	out, err := download.Output()
	var module struct{ Dir string }
	if err = errors.Join(err, json.Unmarshal(out, &module)); err != nil {
		t.Fatalf("download %s: %v\n%s", kubernetes, err, out)
	}
	s := schemas{jsonschema.NewCompiler(), map[string]string{}}
	for _, group := range []string{"api__v1", "apis__apps__v1", "apis__batch__v1", "apis__policy__v1",
		"apis__networking.k8s.io__v1"} {
		raw, err := os.ReadFile(filepath.Join(module.Dir, "api", "openapi-spec", "v3", group+"_openapi.json"))
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		url := "https://kubernetes/" + group
		components := document.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
		for name, schema := range components {
			schema := schema.(map[string]any)
			refuseUnknown(schema)
			kinds, _ := schema["x-kubernetes-group-version-kind"].([]any)
			for _, k := range kinds {
				k := k.(map[string]any)
				version := strings.TrimPrefix(fmt.Sprint(k["group"])+"/"+fmt.Sprint(k["version"]), "/")
				s.kinds[version+" "+fmt.Sprint(k["kind"])] = url + "#/components/schemas/" + name
			}
		}
		if err := s.compiler.AddResource(url, document); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// refuseUnknown makes an object's schema refuse members that it does not name, as the server does when it is asked to.
func refuseUnknown(schema map[string]any) {
	if _, named := schema["properties"]; named && schema["additionalProperties"] == nil {
		schema["additionalProperties"] = false
	}
}

func (s schemas) judge(t *testing.T, o object) error {
	t.Helper()
	at, found := s.kinds[o.apiVersion+" "+o.kind]
	if !found {
		return errors.New("of no kind that there is")
	}
	schema, err := s.compiler.Compile(at)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(o.fields)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func manifests(t *testing.T) []object {
	t.Helper()
	dir := filepath.Join(harness.Root(), "deploy", "kubernetes")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []object
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "kustomization.yaml" {
			for _, other := range files {
				if name := filepath.Base(other); name != "kustomization.yaml" &&
					!strings.Contains(string(raw), "  - "+name+"\n") {
					t.Errorf("kustomization.yaml leaves %s out", name)
				}
			}
			continue
		}
		decoder := yaml.NewDecoder(bytes.NewReader(raw))
		for {
			fields := map[string]any{}
			err := decoder.Decode(&fields)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all = append(all, object{
				filepath.Base(file), fmt.Sprint(fields["kind"]), fmt.Sprint(fields["apiVersion"]), fmt.Sprint(at(fields,
					"metadata", "name")), fields,
			})
		}
	}
	if len(all) < 8 {
		t.Errorf("only %d manifests", len(all))
	}
	return all
}

func find(t *testing.T, kind, name string) object {
	t.Helper()
	for _, o := range manifests(t) {
		if o.kind == kind && o.name == name {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return object{}
}

// at goes down members by name; nil where one is missing.
func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// podOf is the pod's template of a workload.
func (o object) podOf() map[string]any {
	path := []string{"spec", "template"}
	if o.kind == "CronJob" {
		path = []string{"spec", "jobTemplate", "spec", "template"}
	}
	pod, _ := at(o.fields, path...).(map[string]any)
	return pod
}

// TestKubernetes_PodsMayDoNothingBesides: no rights, no root, nothing to write to, and bounds.
func TestKubernetes_PodsMayDoNothingBesides(t *testing.T) {
	pods := 0
	for _, o := range manifests(t) {
		pod := o.podOf()
		if pod == nil {
			continue
		}
		pods++
		for path, want := range map[string]any{
			"spec automountServiceAccountToken": false, "spec securityContext runAsNonRoot": true, "spec securityContext seccompProfile type": "RuntimeDefault",
		} {
			if got := at(pod, strings.Fields(path)...); got != want {
				t.Errorf("%s %s: %s is %v", o.kind, o.name, path, got)
			}
		}
		containers, _ := at(pod, "spec", "containers").([]any)
		if len(containers) != 1 {
			t.Errorf("%s %s has %d containers", o.kind, o.name, len(containers))
		}
		for _, c := range containers {
			for path, want := range map[string]string{
				"securityContext allowPrivilegeEscalation": "false", "securityContext readOnlyRootFilesystem": "true",
				"securityContext capabilities drop": "[ALL]",
			} {
				if got := fmt.Sprint(at(c, strings.Fields(path)...)); got != want {
					t.Errorf("%s %s: %s is %v", o.kind, o.name, path, got)
				}
			}
			if at(c, "resources", "limits", "memory") == nil || at(c, "resources", "requests", "cpu") == nil {
				t.Errorf("%s %s has no bounds", o.kind, o.name)
			}
		}
	}
	if pods != 4 {
		t.Errorf("%d workloads, want migrate, serve, reconcile and audit", pods)
	}
}

// TestKubernetes_SelectorsSelect what they are meant to.
func TestKubernetes_SelectorsSelect(t *testing.T) {
	labels := fmt.Sprint(at(find(t, "Deployment", "refundd").podOf(), "metadata", "labels"))
	for what, got := range map[string]any{
		"the Deployment's": at(find(t, "Deployment", "refundd").fields, "spec", "selector", "matchLabels"),
		"the Service's":    at(find(t, "Service", "refundd").fields, "spec", "selector"),
		"the budget's":     at(find(t, "PodDisruptionBudget", "refundd").fields, "spec", "selector", "matchLabels"),
	} {
		if fmt.Sprint(got) != labels {
			t.Errorf("%s selector is %v, the pods have %v", what, got, labels)
		}
	}
	for _, name := range []string{"refundd-reconcile", "refundd-audit"} {
		job := find(t, "CronJob", name)
		if at(job.fields, "spec", "concurrencyPolicy") != "Forbid" ||
			fmt.Sprint(at(job.fields, "spec", "jobTemplate", "spec", "backoffLimit")) != "0" ||
			at(job.podOf(), "spec", "restartPolicy") != "Never" {
			t.Errorf("%s may run again, or twice at once", name)
		}
	}
}
