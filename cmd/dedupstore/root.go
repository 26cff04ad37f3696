package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
)

const (
	storeEnv     = "DEDUPSTORE_STORE"
	defaultStore = "./seen.store"
)

const rootUsage = `dedupstore remembers which URLs it has seen, exactly and durably.

    dedupstore filter [FILE...]    print the lines never seen, and remember them
    dedupstore import FILE...      remember lines, print nothing
    dedupstore add URL...          remember URLs, print new or seen for each
    dedupstore check [URL...]      print new or seen for each, remember nothing
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
    dedupstore inspect WHAT FILE   print what a file of a store says
    dedupstore version             print the version
    dedupstore completion SHELL    print a completion script
    dedupstore help [COMMAND]      print this, or what a command does

Every command but the last three takes:

    --store DIR    the store (default: $DEDUPSTORE_STORE, else ./seen.store)
    --quiet        say nothing on stderr but errors

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
		PersistentPreRun: func(*cobra.Command, []string) { p.started = true },
		SilenceErrors:    true,
		SilenceUsage:     true,
	}
	// The usage texts are written by hand; a test compares them with the flags.
	root.SetHelpTemplate("{{.Long}}")
	root.SetUsageTemplate("{{.Long}}")
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)

	dir := defaultStore
	if env := os.Getenv(storeEnv); env != "" {
		dir = env
	}
	flags := root.PersistentFlags()
	flags.Var(newValue(&p.dir, dir, "DIR", parseDir), "store", "")
	flags.BoolVar(&p.quiet, "quiet", false, "")
	root.AddCommand(
		newFilter(p), newImport(p), newAdd(p), newCheck(p), newForget(p),
		newCreate(p), newNamespaces(p), newExpire(p), newStats(p), newVerify(p), newRepair(p), newCompact(p), newSnapshot(p), newGrow(p), newInspect(p),
		newVersion(p),
	)
	return root
}
