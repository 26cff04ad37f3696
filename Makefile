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

crash: ## the tests of crashes, kills, power loss and damage, from new seeds
	go test -count=1 -v -run 'Crash|Power|Kill|Torn|Flip|Damage|Cut' ./wal ./mmapfilter ./store ./cmd/...

fuzz: ## every fuzz target for FUZZTIME each (default 30s)
	FUZZTIME=$(FUZZTIME) .ci/run fuzz

golden: ## write the golden files, and the hex dumps of docs/FORMAT.md, anew
	go test ./wal -run Golden -update
	go test ./mmapfilter -run Golden -rewrite
	go test ./store -run Format -update

planted: ## take each rule out in turn and run the test that must then fail
	.ci/run planted

bench: ## small runs of every benchmark; docs/BENCHMARKS.md has the large ones
	cd bench && go run . fill && go run . seen && go run . recover && go run . peers

cover: ## coverage of the library's packages by all tests
	go test -coverprofile=cover.prof -coverpkg=./store,./wal,./mmapfilter ./...
	go tool cover -func=cover.prof | tail -n 1

ci: ## what CI runs
	.ci/run
