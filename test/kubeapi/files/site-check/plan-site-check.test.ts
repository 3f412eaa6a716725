/** A site file and its folder of objects are checked together: every mistake has a file, a line and a column. */
import fc from 'fast-check'
import t from 'tap'
import {
  DEFAULT_CLUSTERSET_RANGES,
  type FileText,
  type SiteTexts,
  planSiteCheck,
} from '../../../../kubeapi/files/plan-site-check.ts'
import { formatProblem } from '../../../../kubeapi/files/problem-board.ts'

const SITE = `apiVersion: sealane.io/v1alpha1
kind: Site
metadata: { name: milano }
spec:
  objects: ./objects
  podCIDRs: [10.42.0.0/16]
  serviceCIDRs: [10.43.0.0/16]
  gateways:
    - { node: gw1, lane: 0, publicAddress: 192.0.2.2 }
    - { node: gw2, publicAddress: 192.0.2.3 }
  dns: { listen: ['10.42.0.1:53'], upstreams: [192.0.2.53] }
`

const NODES = `apiVersion: v1
kind: Node
metadata: { name: gw1 }
spec: { podCIDRs: [10.42.0.0/24] }
status: { addresses: [{ type: InternalIP, address: 192.168.1.1 }] }
---
apiVersion: v1
kind: Node
metadata: { name: gw2 }
spec: { podCIDRs: [10.42.1.0/24] }
status: { addresses: [{ type: InternalIP, address: 192.168.1.2 }] }
`

const SERVICE = `apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { ports: [{ port: 80 }] }
`

/** Returns the problems of a site in /s, with paths relative to it. */
function check(site: string, nodes: string | undefined, more: Readonly<Record<string, string>> = {}): string[] {
  const given = nodes === undefined ? more : { 'nodes.yaml': nodes, ...more }
  const objects = Object.entries(given).map(([name, text]): FileText => ({ file: `/s/objects/${name}`, text }))
  return problemsOf({ site: { file: '/s/site.yaml', text: site }, objects })
}

function problemsOf(texts: SiteTexts): string[] {
  return planSiteCheck(texts, DEFAULT_CLUSTERSET_RANGES).problems.map((one) => formatProblem(one).replaceAll('/s/', ''))
}

t.test('a site without a mistake', (t) => {
  const { config, problems } = planSiteCheck({
    site: { file: '/s/site.yaml', text: SITE },
    objects: [
      { file: '/s/objects/nodes.yaml', text: NODES },
      { file: '/s/objects/web.yaml', text: SERVICE },
    ],
  })
  t.same(problems, [])
  t.equal(config?.name, 'milano')
  t.end()
})

t.test('mistakes in the site file', (t) => {
  const rows: readonly (readonly [name: string, from: string | RegExp, to: string, want: readonly string[]])[] = [
    [
      'a gateway without a Node',
      'node: gw2',
      'node: gw3',
      ['site.yaml:10:15: spec.gateways[1].node: no file of objects has Node gw3; did you mean gw1?'],
    ],
    [
      'a gateway whose Node has quite another name',
      'node: gw2',
      'node: frankfurt',
      ['site.yaml:10:15: spec.gateways[1].node: no file of objects has Node frankfurt'],
    ],
    [
      'no gateways',
      /  gateways:\n.*\n.*\n/,
      '',
      ['site.yaml:5:3: spec.gateways: expected at least one gateway such as { node: gw1 }, got none'],
    ],
    [
      'an empty list of gateways',
      /  gateways:\n.*\n.*\n/,
      '  gateways: []\n',
      ['site.yaml:8:13: spec.gateways: expected at least one gateway such as { node: gw1 }, got none'],
    ],
    [
      'no dns',
      /  dns: .*\n/,
      '',
      ['site.yaml:5:3: spec.dns.listen: expected at least one address:port such as 10.42.0.1:53, got none'],
    ],
    [
      'dns without a place to listen',
      "listen: ['10.42.0.1:53'], ",
      '',
      ['site.yaml:11:8: spec.dns.listen: expected at least one address:port such as 10.42.0.1:53, got none'],
    ],
    [
      'a lane twice',
      'gw2,',
      'gw2, lane: 0,',
      ['site.yaml:10:26: spec.gateways[1].lane: expected a lane of its own, spec.gateways[0] has lane 0 already'],
    ],
    [
      'queries are forwarded nowhere',
      'upstreams: [192.0.2.53]',
      'forwardFor: [192.168.0.0/16]',
      [
        'site.yaml:11:8: spec.dns.upstreams: expected at least one address such as 192.0.2.53, because of spec.dns.forwardFor',
      ],
    ],
    [
      'dns asks itself',
      '192.0.2.53',
      '10.42.0.1',
      ['site.yaml:11:48: spec.dns.upstreams[0]: expected another DNS server, 10.42.0.1:53 is in spec.dns.listen'],
    ],
    [
      'dns listens at a multicast group',
      '10.42.0.1:53',
      '224.0.0.251:53',
      ['site.yaml:11:19: spec.dns.listen[0]: expected an address of a node, 224.0.0.251:53 is a multicast group'],
    ],
    [
      'dns listens at an IPv6 multicast group',
      '10.42.0.1:53',
      '[ff02::fb]:53',
      ['site.yaml:11:19: spec.dns.listen[0]: expected an address of a node, [ff02::fb]:53 is a multicast group'],
    ],
    [
      'dns listens twice at one address',
      "'10.42.0.1:53'",
      "'10.42.0.1:53', '[fd00::1]:53', '[fd00:0::1]:53', '10.42.0.1:5353', '10.42.0.1:53'",
      [
        'site.yaml:11:51: spec.dns.listen[2]: expected an address:port of its own, spec.dns.listen[1] has [fd00:0::1]:53 already',
        'site.yaml:11:87: spec.dns.listen[4]: expected an address:port of its own, spec.dns.listen[0] has 10.42.0.1:53 already',
      ],
    ],
    [
      'dns listens on all addresses beside one of them',
      "'10.42.0.1:53'",
      "'10.42.0.1:53', '0.0.0.0:53', '[::]:5353', '[fd00::1]:5353', '0.0.0.0:5353'",
      [
        'site.yaml:11:35: spec.dns.listen[1]: expected an address:port of its own, 0.0.0.0:53 is on all addresses, also that of spec.dns.listen[0], 10.42.0.1:53',
        'site.yaml:11:62: spec.dns.listen[3]: expected an address:port of its own, spec.dns.listen[2] has [::]:5353, which is on all addresses',
      ],
    ],
    [
      'dns at the port of the overlay, which no field states',
      '10.42.0.1:53',
      '10.42.0.1:4810',
      ['site.yaml:11:19: spec.dns.listen[0]: expected another port, 10.42.0.1:4810 has that of the overlay'],
    ],
    ...(
      [
        [4498, '4498 is for probes between nodes'],
        [4499, '4499 is for probes inside lanes'],
        [4500, '4500 to 4507 are for lanes'],
        [4507, '4500 to 4507 are for lanes'],
        [4580, '4580 is for questions to relays'],
        [4587, '4587 is for questions to relays'],
      ] as const
    ).map(([port, why]): (typeof rows)[number] => [
      `dns at port ${port}`,
      "'10.42.0.1:53'",
      `'10.42.0.1:53', '10.42.0.2:${port}'`,
      [`site.yaml:11:35: spec.dns.listen[1]: expected another port than that of 10.42.0.2:${port}: ${why}`],
    ]),
    ...[4497, 4508, 4579, 4588, 4600, 4799].map((port): (typeof rows)[number] => [
      `dns at port ${port}, which is free where no gateway relays`,
      '10.42.0.1:53',
      `10.42.0.1:${port}`,
      [],
    ]),
    [
      'a hub at a UDP port of lanes takes TCP',
      '  objects: ./objects\n',
      "  objects: ./objects\n  hub: { listen: ['10.42.0.2:4500'] }\n",
      [],
    ],
    [
      'a hub twice, and at a port of dns',
      '  objects: ./objects\n',
      "  objects: ./objects\n  hub: { listen: ['10.42.0.2:9474', '10.42.0.2:9474', '10.42.0.1:53'] }\n",
      [
        'site.yaml:6:37: spec.hub.listen[1]: expected an address:port of its own, spec.hub.listen[0] has 10.42.0.2:9474 already',
        'site.yaml:6:55: spec.hub.listen[2]: expected an address:port of its own, spec.dns.listen[0] has 10.42.0.1:53 already',
      ],
    ],
    [
      'dns on all addresses asks itself',
      "'10.42.0.1:53'], upstreams: [192.0.2.53]",
      "'0.0.0.0:53'], upstreams: [127.0.0.53]",
      [
        'site.yaml:11:46: spec.dns.upstreams[0]: expected another DNS server, 127.0.0.53:53 is in spec.dns.listen as 0.0.0.0:53',
      ],
    ],
    ['a misspelt kind', 'kind: Site', 'kind: site', ['site.yaml:2:7: kind: expected one of Site, got "site"']],
    [
      'unknown fields, all of them',
      '  objects: ./objects\n',
      '  nodeCIDRs: []\n  gateway: gw1\n',
      ['site.yaml:5:14: spec.nodeCIDRs: no such field', 'site.yaml:6:12: spec.gateway: no such field'],
    ],
    [
      "the lanes' range",
      '[10.43.0.0/16]',
      '[246.10.0.0/16]',
      ['site.yaml:7:18: spec.serviceCIDRs[0]: 246.10.0.0/16 overlaps 246.0.0.0/8 of the lanes'],
    ],
    [
      'the range of global addresses',
      '[10.43.0.0/16]',
      '[244.0.0.0/16]',
      ['site.yaml:7:18: spec.serviceCIDRs[0]: 244.0.0.0/16 overlaps 244.0.0.0/8 of global addresses'],
    ],
    [
      'the range of clusterset IPs',
      '[10.43.0.0/16]',
      '[245.0.128.0/17]',
      ['site.yaml:7:18: spec.serviceCIDRs[0]: 245.0.128.0/17 overlaps 245.0.0.0/16 of clusterset IPs'],
    ],
    [
      'the IPv6 range of clusterset IPs',
      '[10.43.0.0/16]',
      "['fd53:ea1a:4e00::/64']",
      ['site.yaml:7:18: spec.serviceCIDRs[0]: fd53:ea1a:4e00::/64 overlaps fd53:ea1a:4e00::/96 of clusterset IPs'],
    ],
  ]
  for (const [name, from, to, want] of rows) t.strictSame(check(SITE.replace(from, to), NODES), want, name)
  t.end()
})

t.test('dns and gateways with ports of their own', (t) => {
  const site = (listen: string, gateway: string): string[] =>
    check(SITE.replace('192.0.2.3 }', `192.0.2.3, ${gateway} }`).replace("'10.42.0.1:53'", listen), NODES)
  const lanes = 'listenPort: 51820, publicPort: 51820'
  t.strictSame(site("'[fd00::1]:51827'", lanes), [
    'site.yaml:11:19: spec.dns.listen[0]: expected another port than that of [fd00::1]:51827: 51820 to 51827 are for lanes',
  ])
  t.strictSame(site("'10.42.0.1:51828', '10.42.0.1:51819'", lanes), [])
  t.match(site("'0.0.0.0:4500'", lanes), [/4500 to 4507 are for lanes$/], 'gw1 has the usual ports')
  t.strictSame(site("'10.42.0.1:4700'", 'relay: true'), [
    'site.yaml:11:19: spec.dns.listen[0]: expected another port than that of 10.42.0.1:4700: 4600 to 4799 are for relayed packets',
  ])
  t.end()
})

t.test('mistakes in the folder of objects', (t) => {
  const rows: readonly (readonly [name: string, from: string | RegExp, to: string, want: readonly string[]])[] = [
    [
      'a Node without an InternalIP',
      'type: InternalIP, address: 192.168.1.2',
      'type: Hostname, address: gw2',
      ['objects/nodes.yaml:11:22: status.addresses: Node gw2: expected an InternalIP, got none'],
    ],
    [
      'a Node without a status',
      /status: .*1\.2.*\n/,
      '',
      ['objects/nodes.yaml:7:1: status.addresses: Node gw2: expected an InternalIP, got none'],
    ],
    [
      'an InternalIP that is no address',
      '192.168.1.2',
      'gw2.example.org',
      [
        'objects/nodes.yaml:11:52: status.addresses[0].address: expected an IPv4 or IPv6 address such as 10.42.0.7, got "gw2.example.org"',
      ],
    ],
    [
      'a gateway with IPv6 only',
      '192.168.1.2',
      "'fd00::2'",
      ['objects/nodes.yaml:11:22: status.addresses: Node gw2 is a gateway: expected an IPv4 InternalIP, got IPv6 only'],
    ],
    [
      'an InternalIP twice',
      '192.168.1.2',
      '192.168.1.1',
      [
        'objects/nodes.yaml:11:52: status.addresses: expected an InternalIP of its own, Node gw1 has 192.168.1.1 already',
      ],
    ],
    [
      'an InternalIP of the lanes',
      '192.168.1.2',
      '246.0.0.9',
      ['objects/nodes.yaml:11:52: status.addresses: 246.0.0.9 is in 246.0.0.0/8 of the lanes'],
    ],
    [
      "a podCIDR outside the site's",
      '10.42.1.0/24',
      '10.44.1.0/24',
      [
        'objects/nodes.yaml:10:20: spec.podCIDRs[0]: expected a part of spec.podCIDRs of site.yaml (10.42.0.0/16), got 10.44.1.0/24',
      ],
    ],
    [
      'the older field, around the range of the site',
      'podCIDRs: [10.42.1.0/24]',
      'podCIDR: 10.0.0.0/8',
      [
        'objects/nodes.yaml:10:18: spec.podCIDR: expected a range of its own, 10.0.0.0/8 overlaps 10.42.0.0/24 of Node gw1',
      ],
    ],
    [
      'a podCIDR twice',
      '10.42.1.0/24',
      '10.42.0.128/25',
      [
        'objects/nodes.yaml:10:20: spec.podCIDRs[0]: expected a range of its own, 10.42.0.128/25 overlaps 10.42.0.0/24 of Node gw1',
      ],
    ],
    [
      'a Node twice in one file',
      'name: gw2',
      'name: gw1',
      [
        'site.yaml:10:15: spec.gateways[1].node: no file of objects has Node gw2; did you mean gw1?',
        'objects/nodes.yaml:7:1: Node gw1 occurs twice in this file, first at line 1',
      ],
    ],
    [
      'a misspelt kind',
      /kind: Node\n(.*gw2)/,
      'kind: node\n$1',
      [
        'site.yaml:10:15: spec.gateways[1].node: no file of objects has Node gw2; did you mean gw1?',
        'objects/nodes.yaml:8:7: kind: expected Node, got "node"',
      ],
    ],
    [
      'a misspelt version',
      /apiVersion: v1\n(.*\n.*gw2)/,
      'apiVersion: v2\n$1',
      [
        'site.yaml:10:15: spec.gateways[1].node: no file of objects has Node gw2; did you mean gw1?',
        'objects/nodes.yaml:7:13: apiVersion: expected v1, got "v2"',
      ],
    ],
  ]
  for (const [name, from, to, want] of rows) {
    t.strictSame(check(SITE, NODES.replace(from, to)), want, name)
  }
  const nowhere = [
    ['0.0.0.0', '0.0.0.0/8 of hosts that have no address yet'],
    ['127.0.0.1', '127.0.0.0/8 of loopback addresses'],
    ['169.254.1.1', '169.254.0.0/16 of link-local addresses'],
    ['224.0.0.5', '224.0.0.0/4 of multicast groups'],
    ['255.255.255.255', '255.255.255.255/32 of broadcasts'],
  ] as const
  for (const [address, range] of nowhere) {
    const reason = `expected an address at which other nodes reach Node gw2, ${address} is in ${range}`
    const want = [`objects/nodes.yaml:11:52: status.addresses: ${reason}`]
    t.strictSame(check(SITE, NODES.replace('192.168.1.2', address)), want, address)
  }
  for (const address of ['::', '::1', 'fe80::1', 'ff02::1']) {
    const more = `192.168.1.2 }, { type: InternalIP, address: '${address}'`
    t.match(check(SITE, NODES.replace('192.168.1.2', more)), [/ reach Node gw2, /], address)
  }
  t.strictSame(
    check(SITE, NODES.slice(0, NODES.indexOf('---')), { 'broken.yaml': SERVICE.replace('80', '"x"') }),
    [
      'site.yaml:10:15: spec.gateways[1].node: no file of objects has Node gw2; did you mean gw1?',
      'objects/broken.yaml:4:25: spec.ports[0].port: expected 1 to 65535, got "x"',
    ],
    'a broken file that does not name the Node',
  )
  t.strictSame(
    check(SITE, NODES, { 'other.yaml': NODES.slice(0, NODES.indexOf('---')) }),
    ['objects/other.yaml:1:1: Node gw1 is also in objects/nodes.yaml:1; remove one of the two'],
    'a Node in two files',
  )
  t.end()
})

t.test('kinds of other products are no mistakes', (t) => {
  const others = [
    ['v1', 'Endpoints', 'Event', 'ConfigMap', 'Secret', 'ServiceAccount', 'PodTemplate', 'PersistentVolume', 'Binding'],
    ['apps/v1', 'Deployment', 'DaemonSet', 'ReplicaSet'],
    ['multicluster.x-k8s.io/v1beta1', 'ServiceImport'],
    ['net.gke.io/v1', 'ServiceExport', 'ServiceImport'],
    ['serving.knative.dev/v1', 'Service'],
    ['sealane.io/v1alpha1', 'Membership'],
  ]
  for (const [apiVersion = '', ...kinds] of others) {
    for (const kind of kinds) {
      const text = `apiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: { name: a }\n`
      t.strictSame(check(SITE, NODES, { 'a.yaml': text }), [], `${apiVersion} ${kind}`)
    }
  }
  const wrong = [
    ['multicluster.k8s.io/v1beta1', 'ServiceExport', '1:13: apiVersion: expected multicluster.x-k8s.io/v1beta1, got'],
    ['multicluster.x-k8s.io/v1', 'ServiceExport', '1:13: apiVersion: expected multicluster.x-k8s.io/v1beta1, got'],
    ['multicluster.x-k8s.io/v1beta1', 'ServiceExprot', '2:7: kind: expected ServiceExport, got'],
    ['discovery.k8s.io/v1beta1', 'EndpointSlice', '1:13: apiVersion: expected discovery.k8s.io/v1, got'],
    ['v1', 'EndpointSlice', '1:13: apiVersion: expected discovery.k8s.io/v1, got'],
    ['v1', 'Servcie', '2:7: kind: expected Service, got'],
  ]
  for (const [apiVersion = '', kind = '', want = ''] of wrong) {
    const text = `apiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: { name: a, namespace: a }\n`
    const [found = ''] = check(SITE, NODES, { 'a.yaml': text })
    t.ok(found.startsWith(`objects/a.yaml:${want} `), `${apiVersion} ${kind}: ${found}`)
  }
  t.end()
})

t.test('files that cannot be read at all', (t) => {
  t.strictSame(check('', NODES), ['site.yaml:1:1: expected one document of kind Site, got 0'])
  t.strictSame(check('# nothing\n', NODES), ['site.yaml:1:1: expected one document of kind Site, got 0'])
  t.strictSame(check(`${SITE}---\n${SITE}`, NODES), ['site.yaml:1:1: expected one document of kind Site, got 2'])
  const bomb = ['a: &a [x,x,x,x,x,x,x,x,x,x]']
  for (const [one, before] of ['b', 'c', 'd', 'e', 'f'].map((name, i) => [name, 'abcde'[i]] as const)) {
    bomb.push(`${one}: &${one} [${Array.from({ length: 10 }, () => `*${before ?? ''}`).join()}]`)
  }
  const [bombed = ''] = check(`${bomb.join('\n')}\n`, NODES)
  t.match(bombed, /^site\.yaml:1:1: Excessive alias count/)
  const folder = { site: { file: '/s/site.yaml', text: SITE }, objects: 'no such folder' }
  t.strictSame(problemsOf(folder), ['site.yaml:5:12: spec.objects: objects: no such folder'])
  t.strictSame(
    problemsOf({ ...folder, site: { file: '/s/site.yaml', text: SITE.replace('  objects: ./objects\n', '') } }),
    ['site.yaml:5:3: spec.objects: objects: no such folder'],
  )
  t.strictSame(problemsOf({ site: { file: '/s/site.yaml', unreadable: 'no such file' }, objects: [] }), [
    'site.yaml:1:1: no such file',
  ])
  t.strictSame(problemsOf({ ...folder, objects: [{ file: '/s/objects/a.yaml', unreadable: 'not a regular file' }] }), [
    'objects/a.yaml:1:1: not a regular file',
  ])
  t.end()
})

t.test('all mistakes of all files in one run, also beside a site file with a wrong field', (t) => {
  const nodes = NODES.replace('192.168.1.2', '192.168.1.1').replace('10.42.1.0', '10.42.0.0')
  t.strictSame(check(SITE.replace('milano', 'Milano'), nodes, { 'web.yaml': SERVICE.replace('80', '"x"') }), [
    'site.yaml:3:19: metadata.name: expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -, got "Milano"',
    'objects/nodes.yaml:10:20: spec.podCIDRs[0]: expected a range of its own, 10.42.0.0/24 overlaps 10.42.0.0/24 of Node gw1',
    'objects/nodes.yaml:11:52: status.addresses: expected an InternalIP of its own, Node gw1 has 192.168.1.1 already',
    'objects/web.yaml:4:25: spec.ports[0].port: expected 1 to 65535, got "x"',
  ])
  t.end()
})

t.test('a site in a Kubernetes cluster has no folder, and its Nodes are in the API server', (t) => {
  const text = SITE.replace(/  gateways:\n.*\n.*\n/, '  kubernetes: {}\n')
    .replace('  objects: ./objects\n', '')
    .replace(/  dns: .*\n/, '')
  t.strictSame(problemsOf({ site: { file: '/s/site.yaml', text }, objects: 'no such folder' }), [])
  t.end()
})

t.test('no text makes it throw, and each problem has a place', () => {
  const edit = fc.tuple(fc.boolean(), fc.nat(600), fc.nat(12), fc.string({ maxLength: 6 }))
  fc.assert(
    fc.property(edit, ([ofSite, at, cut, put]) => {
      const changed = (text: string): string => text.slice(0, at) + put + text.slice(at + cut)
      const site = { file: '/s/site.yaml', text: ofSite ? changed(SITE) : SITE }
      const objects = [{ file: 'nodes.yaml', text: ofSite ? NODES : changed(NODES) }]
      const { config, problems } = planSiteCheck({ site, objects }, DEFAULT_CLUSTERSET_RANGES)
      return (
        (config !== undefined || problems.length > 0) && problems.every(({ line, column }) => line > 0 && column > 0)
      )
    }),
    { numRuns: 500 },
  )
  return Promise.resolve()
})
