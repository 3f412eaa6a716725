// Command render prints what other tools make of the manifests, each as one JSON array on standard output, so that a
// test can compare them: the libraries of kustomize and Helm, and the CRDs of sigs.k8s.io/mcs-api.
//
//	render kustomize FOLDER          like `kustomize build FOLDER`
//	render helm FOLDER [VALUES.yaml] like `helm template --include-crds`
//	render mcs                       the CRDs of the Multi-Cluster Services API
//	render health < QUESTIONS.json   what Argo CD's health scripts say of objects
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	crd "sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"
)

func main() {
	objects, err := render(os.Args[1:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(objects)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(args []string) ([]any, error) {
	switch {
	case len(args) == 2 && args[0] == "kustomize":
		return kustomize(args[1])
	case len(args) >= 2 && len(args) <= 3 && args[0] == "helm":
		return helm(args[1], args[2:])
	case len(args) == 1 && args[0] == "mcs":
		return decode(string(crd.ServiceExportCRD), string(crd.ServiceImportCRD))
	case len(args) == 1 && args[0] == "health":
		return health(os.Stdin)
	}
	return nil, fmt.Errorf("usage: render kustomize FOLDER | helm FOLDER [VALUES.yaml] | mcs | health")
}

func kustomize(folder string) ([]any, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, err
	}
	text, err := resources.AsYaml()
	if err != nil {
		return nil, err
	}
	return decode(string(text))
}

func helm(folder string, files []string) ([]any, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	given := chartutil.Values{}
	for _, file := range files {
		if given, err = chartutil.ReadValuesFile(file); err != nil {
			return nil, err
		}
	}
	release := chartutil.ReleaseOptions{Name: "sealane", Namespace: "default", Revision: 1, IsInstall: true}
	// ToRenderValues checks the values against the chart's schema.
	values, err := chartutil.ToRenderValues(chart, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.Render(chart, values)
	if err != nil {
		return nil, err
	}
	texts := []string{}
	for _, one := range chart.CRDObjects() {
		texts = append(texts, string(one.File.Data))
	}
	names := []string{}
	for name := range rendered {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		texts = append(texts, rendered[name])
	}
	return decode(texts...)
}

// decode splits at document marks and leaves out documents without an object.
func decode(texts ...string) ([]any, error) {
	objects := []any{}
	for _, text := range texts {
		for _, document := range strings.Split("\n"+text, "\n---") {
			var object any
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				return nil, fmt.Errorf("%w in:\n%s", err, document)
			}
			if object != nil {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}
