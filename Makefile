# "make" lists the targets. CI does not need make: it runs .ci/run, which some of
# them call for one of its steps.

FUZZTIME ?= 30s

.DEFAULT_GOAL = help
.PHONY: help fmt lint test race crash fuzz golden planted bench cover ci

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 10

fmt: ## format the code
	gofmt -w .

lint: ## gofmt, go vet with and without the planted faults, staticcheck
	.ci/run lint

test: ## all tests
	.ci/run tests

race: ## the tests of everything concurrent, under the race detector
	.ci/run race

crash: ## the full runs of the tests of power loss, kills, failing calls and damage
	go test -count=1 -timeout 2h ./wal ./mmapfilter ./fuzz
	go test -count=1 -v -timeout 2h -run 'Power|EveryCall|FullMoments|EachStep|Damage|Kill' ./store -args \
		-crash.points=1000 -crash.calls -full.calls -damage.all -kill.points=200
	go test -count=1 -v -timeout 2h -run 'ManyAdders|ManyClaimers|ClaimsKilled' ./store -args -store.runs=20 -store.keys=1000000

fuzz: ## every fuzz target for FUZZTIME each (default 30s)
	FUZZTIME=$(FUZZTIME) .ci/run fuzz

golden: ## write the golden files, and the hex dumps of docs/FORMAT.md, anew
	go test ./wal -run Golden -update
	go test ./mmapfilter -run Golden -rewrite
	go test ./counting -run Golden -rewrite
	go test ./store -run Format -update

planted: ## take each rule out in turn and run the test that must then fail
	.ci/run planted

bench: ## small runs of every benchmark; docs/BENCHMARKS.md has the large ones
	cd bench && go run . fill && go run . seen && go run . recover && go run . peers

cover: ## coverage of the library's packages by all tests
	go test -coverprofile=cover.prof -coverpkg=./store,./wal,./mmapfilter,./counting,./urlkey ./...
	go tool cover -func=cover.prof | tail -n 1

ci: ## what CI runs
	.ci/run
