/** Corefiles as distributions install them, and an arbitrary one. */
import fc from 'fast-check'

const KUBERNETES = `        kubernetes cluster.local in-addr.arpa ip6.arpa {
           pods insecure
           fallthrough in-addr.arpa ip6.arpa
           ttl 30
        }`

export const KUBEADM = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
${KUBERNETES.replaceAll(/^ {4}/gm, '')}
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
`

export const K3S = `.:53 {
        errors
        health
        ready
${KUBERNETES}
        hosts /etc/coredns/NodeHosts {
          ttl 60
          reload 15s
          fallthrough
        }
        prometheus :9153
        cache 30
        loop
        reload
        loadbalance
        import /etc/coredns/custom/*.override
        forward . /etc/resolv.conf
    }
    import /etc/coredns/custom/*.server
`

export const AKS = `.:53 {
    errors
    ready
    health {
      lameduck 5s
    }
    kubernetes cluster.local in-addr.arpa ip6.arpa {
      pods insecure
      fallthrough in-addr.arpa ip6.arpa
      ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
    import custom/*.override
}
import custom/*.server
`

/** The Corefile that the chart prints, without a newline at the end. */
export const RKE2 = `
.:53 {
    errors
    health  {
        lameduck 10s
    }
    ready
    kubernetes   cluster.local  cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus  0.0.0.0:9153
    forward  . /etc/resolv.conf
    cache  30
    loop
    reload
    loadbalance
}`

export const NODE_LOCAL = `cluster.local:53 {
    errors
    cache {
            success 9984 30
            denial 9984 5
    }
    reload
    loop
    bind 169.254.20.10 10.43.0.10
    forward . __PILLAR__CLUSTER__DNS__ {
            force_tcp
    }
    prometheus :9253
    health 169.254.20.10:8080
}
.:53 {
    errors
    cache 30
    reload
    loop
    bind 169.254.20.10 10.43.0.10
    forward . __PILLAR__UPSTREAM__SERVERS__
    prometheus :9253
}
`

/**
 * A Corefile with names with and without ports, snippets, comments in odd places, several names, quotes, and a brace on
 * its own line.
 */
export const ODD = `# kept by hand; ask the network team
(logging) {
    errors   # "every" error
    log . {
        class denial
    }
}

.:5353,
dns://example.org:5353 \t {
    import logging
    template IN A example.net {
        match "^ip-(?P<a>[0-9]*)[.]example[.]net[.]$"
        answer "{{ .Name }} 60 IN A {{ .Group.a }}"
        fallthrough
    }
    forward . 192.0.2.1#comment
} # end
tls://example.org
{
    tls cert.pem key.pem
    whoami
}
import conf.d/*.conf`

export const SUBMARINER = `#lighthouse-start AUTO-GENERATED SECTION. DO NOT EDIT
clusterset.local:53 {
    forward . 10.43.200.1
}
#lighthouse-end
${KUBEADM}`

export const ALL: Readonly<Record<string, string>> = { KUBEADM, K3S, AKS, RKE2, NODE_LOCAL, ODD }

const word = fc.oneof(
  fc.constantFrom(
    'errors',
    'log',
    'reload',
    'forward',
    '.',
    '10.0.0.1',
    'a#b',
    '"two words"',
    '""',
    '"x\ny"',
    '{$HOME}',
    'a,',
  ),
  fc.string({ minLength: 1, maxLength: 6 }).filter((text) => !/[\s{}"#]/.test(text) && text !== 'import'),
)
const space = fc.constantFrom(' ', '  ', '\t', ' \r', '\u00a0')
const comment = fc.constantFrom('', '', '', ' # a comment', ' # { "', '  # }')
const line = fc
  .tuple(space, fc.array(word, { minLength: 1, maxLength: 4 }), space, comment)
  .map(([indent, words, gap, end]) => `${indent}${words.join(gap)}${end}\n`)
const nested = fc
  .tuple(word, fc.array(line, { maxLength: 3 }))
  .filter(([name]) => !name.startsWith('"'))
  .map(([name, lines]) => `  ${name} {\n${lines.join('')}  }\n`)
const key = fc.constantFrom(
  'example.org',
  'example.org:53',
  'dns://a.example',
  'tls://b.example:853',
  '10.0.0.0/8',
  'local',
)
const server = fc
  .tuple(
    fc.array(key, { minLength: 1, maxLength: 3 }),
    fc.constantFrom(' ', ', ', ',\n'),
    fc.constantFrom(' {', '\n{'),
    fc.array(fc.oneof(line, nested), { maxLength: 4 }),
  )
  .map(([keys, gap, brace, lines]) => `${keys.join(gap)}${brace}\n${lines.join('')}}\n`)
const snippet = fc.array(line, { maxLength: 3 }).map((lines) => `(name) {\n${lines.join('')}}\n`)
const other = fc.constantFrom('\n', '# sealane was here\n', '   # }\n', 'import conf.d/*.conf\n', '\r\n')
const root = fc
  .tuple(
    fc.constantFrom('.', '.:53', '.:5353 .:53', 'cluster.local. .'),
    fc.constantFrom('', '  bind 127.0.0.1 ::1\n'),
    fc.array(line, { maxLength: 3 }),
  )
  .map(([keys, bind, lines]) => `${keys} {\n${bind}${lines.join('')}}\n`)

/** Corefiles with a server block for ordinary names at any place, with and without a newline at the end. */
export const arbitraryCorefile: fc.Arbitrary<string> = fc
  .tuple(
    fc.array(fc.oneof(server, snippet, other), { maxLength: 4 }),
    root,
    fc.array(fc.oneof(server, other), { maxLength: 3 }),
    fc.boolean(),
  )
  .filter(([before]) => before.filter((part) => part.startsWith('(')).length < 2)
  .map(([before, middle, after, cut]) => {
    const text = [...before, middle, ...after].join('')
    return cut ? text.replace(/\r?\n$/, '') : text
  })
