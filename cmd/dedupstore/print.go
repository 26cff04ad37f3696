package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"text/tabwriter"
)

// A row is one figure with its name.
type row struct{ name, value string }

// printTable writes rows to stdout in two columns.
func (p *program) printTable(rows []row) error {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\n", r.name, r.value)
	}
	w.Flush()
	return writeOut(p.stdout, out.Bytes())
}

// printJSON writes v to stdout as one JSON object.
func (p *program) printJSON(v any) error {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeOut(p.stdout, append(out, '\n'))
}
