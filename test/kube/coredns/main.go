// A CoreDNS with the plugins that the kube tier needs, from the published module. It is an oracle and a test subject,
// never a part of the product. `coredns -conf FILE` serves, as the real one does; `coredns parse FILE…` prints what
// CoreDNS' own parser makes of each file, one line of JSON for each.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

type block struct {
	Keys []string `json:"keys"`
	// By name, with all words of all lines: CoreDNS itself keeps no order between plugins.
	Plugins map[string][]string `json:"plugins"`
}

type result struct {
	File   string  `json:"file"`
	Error  string  `json:"error,omitempty"`
	Blocks []block `json:"blocks"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "parse" {
		for _, file := range os.Args[2:] {
			line, err := json.Marshal(parse(file))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println(string(line))
		}
		return
	}
	coremain.Run()
}

func parse(file string) result {
	found := result{File: file, Blocks: []block{}}
	input, err := os.Open(file)
	if err != nil {
		found.Error = err.Error()
		return found
	}
	defer input.Close()
	// Any plugin's name will do: which ones there are is another matter.
	blocks, err := caddyfile.Parse(file, input, nil)
	if err != nil {
		found.Error = err.Error()
		return found
	}
	for _, each := range blocks {
		plugins := map[string][]string{}
		for name, tokens := range each.Tokens {
			for _, token := range tokens {
				plugins[name] = append(plugins[name], token.Text)
			}
		}
		found.Blocks = append(found.Blocks, block{Keys: each.Keys, Plugins: plugins})
	}
	return found
}
