package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"
)

const defaultStore = "./seen.store"

const rootUsage = `dedupstore remembers which URLs it has seen, exactly and durably.

    dedupstore filter [FILE...]    print the lines never seen, and remember them
    dedupstore import FILE...      remember lines, print nothing
    dedupstore add URL...          remember URLs, print new or seen for each
    dedupstore check [URL...]      print new or seen for each, remember nothing
    dedupstore why URL...          say why a URL is answered as it is
    dedupstore forget [URL...]     make URLs new again, or those of a namespace
    dedupstore create              make an empty store, or a namespace
    dedupstore namespaces          list the namespaces of a store
    dedupstore expire              give back now the space of what has expired
    dedupstore stats               print the figures of a store
    dedupstore verify              look for damage in a store
    dedupstore repair              say what can be had back of it, and do it
    dedupstore compact             merge the tables of a store
    dedupstore snapshot DIR        make a copy of a store
    dedupstore grow --urls N       make the bitmap of a store larger
    dedupstore plan --urls N       say what a store takes, beside others
    dedupstore bench [FILE]        measure a store on this machine
    dedupstore inspect WHAT FILE   print what a file of a store says
    dedupstore canon [FILE...]     print URLs in canonical form, or compare forms
    dedupstore version             print the version
    dedupstore completion SHELL    print a completion script
    dedupstore help [COMMAND]      print this, or what a command does

Every command but plan, bench and the last four takes:

    --store DIR    the store (default: ./seen.store)
    --quiet        say nothing on stderr but errors

For every flag but --help and --version there is an environment variable, which
counts where the flag is not given and the variable not empty: DEDUPSTORE_MEMORY
for --memory, DEDUPSTORE_MUST_EXIST=true for --must-exist.

Data goes to stdout, everything else to stderr. Exit codes:

    0      all is well
    1      check: at least one is new
    2      the command line is wrong
    3      another process holds the store
    4      the store is damaged, or of a version not known
    5      the disk is full
    6      any other error
    7      expire: the clock is far behind the store's time
    130    interrupted, after the store was closed in order

Examples:

    zcat links.gz | dedupstore filter > new-links.txt
    dedupstore check https://example.com/ || echo "not all seen"
    dedupstore stats --json
`

func newRoot(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:     "dedupstore",
		Long:    rootUsage,
		Version: versionText(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError(cmd, errors.New("no command given"))
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := setFromEnv(cmd); err != nil {
				return err
			}
			p.started = true
			return nil
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	// The usage texts are written by hand; a test compares them with the flags.
	root.SetHelpTemplate("{{.Long}}")
	root.SetUsageTemplate("{{.Long}}")
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(p.stdin)
	root.SetOut(helpWriter{p.stdout})
	root.SetErr(p.stderr)

	root.SetFlagErrorFunc(suggestFlag)

	flags := root.PersistentFlags()
	flags.Var(newValue(&p.dir, defaultStore, "DIR", parseDir), "store", "")
	flags.BoolVar(&p.quiet, "quiet", false, "")
	root.AddCommand(
		newFilter(p), newImport(p), newAdd(p), newCheck(p), newWhy(p), newForget(p),
		newCreate(p), newNamespaces(p), newExpire(p), newStats(p), newVerify(p), newRepair(p), newCompact(p), newSnapshot(p), newGrow(p),
		newPlan(p), newBench(p), newInspect(p), newCanon(p), newVersion(p),
	)
	p.complete(root)
	return root
}

// A helpWriter takes what cobra prints, which would complain if nobody reads
// it.
type helpWriter struct{ w io.Writer }

func (h helpWriter) Write(text []byte) (int, error) {
	if err := writeOut(h.w, text); err != nil && err != errReaderGone {
		return 0, err
	}
	return len(text), nil
}
