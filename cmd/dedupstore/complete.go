package main

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dedupstore/store"
)

// complete tells the completion scripts what may follow each flag, by the kind
// of its value, and what the arguments of each verb are.
func (p *program) complete(root *cobra.Command) {
	for _, cmd := range append(root.Commands(), root) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { p.completeFlag(cmd, f) })
		switch cmd.Name() {
		case "filter", "import", "canon", "bench": // files, which the shell completes
		case "inspect":
			cmd.ValidArgsFunction = completeInspect
		default:
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}

func (p *program) completeFlag(cmd *cobra.Command, f *pflag.Flag) {
	fixed := cobra.NoFileCompletions
	switch v, _ := f.Value.(interface{ choices() []string }); {
	case v != nil && v.choices() != nil:
		fixed = cobra.FixedCompletions(v.choices(), cobra.ShellCompDirectiveNoFileComp)
	case f.Value.Type() == "DIR":
		fixed = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	case f.Value.Type() == "FILE":
		return // as the shell does
	case f.Name == "namespace":
		fixed = p.completeNamespace
	}
	if err := cmd.RegisterFlagCompletionFunc(f.Name, fixed); err != nil {
		panic("bug: " + err.Error())
	}
}

// completeNamespace returns the names in the store, and none if it does not
// open: another process may hold it.
func (p *program) completeNamespace(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	p.quiet = true
	if err := setFromEnv(cmd); err != nil {
		return nil, directive
	}
	s, err := p.openAny(store.Options{ReadOnly: true, MemoryBytes: store.MinMemoryBytes})
	if err != nil {
		return nil, directive
	}
	for n := range s.Namespaces() {
		if n.Name != "" {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	if s.Close() != nil {
		return nil, directive
	}
	return names, directive
}

func completeInspect(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return slices.Sorted(maps.Keys(inspections)), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}
