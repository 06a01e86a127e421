// Renders a chart's templates as Helm does, for templates that use nothing but Go's own functions:
// go run render.go FOLDER VALUES.json NAMESPACE
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"text/template"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	text, err := os.ReadFile(os.Args[2])
	must(err)
	var values map[string]interface{}
	must(json.Unmarshal(text, &values))
	data := map[string]interface{}{
		"Values":  values,
		"Release": map[string]string{"Namespace": os.Args[3]},
	}
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.yaml"))
	must(err)
	sort.Strings(files)
	for _, file := range files {
		all, err := template.New(filepath.Base(file)).Option("missingkey=error").ParseFiles(file)
		must(err)
		fmt.Println("---")
		must(all.Execute(os.Stdout, data))
	}
}
