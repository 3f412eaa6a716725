import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { parseSiteFile, readSiteFile } from '../../../kubeapi/files/site-file.ts'
import { failure, messageOf } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const GOOD = `apiVersion: sealane.io/v1alpha1
kind: Site
metadata: { name: milano }
spec:
  objects: ./objects
  state: /var/lib/sealane
  podCIDRs: [10.42.0.0/16]
  serviceCIDRs: [10.43.0.0/16]
  labels: { region: eu-south }
  gateways:
    - { node: gw, lane: 0, publicAddress: 192.0.2.10 }
    - { node: gw2, lane: 1 }
  dns: { listen: ['10.42.0.1:53'], upstreams: [192.0.2.53, '[fd00::1]:5353', 'fd00::2'], forwardFor: [192.168.0.0/16] }
  openHostPorts: [tcp/9100, udp/514]
`

t.test('a whole site file', async (t) => {
  t.same(parseSiteFile('/etc/sealane/site.yaml', GOOD), {
    file: '/etc/sealane/site.yaml',
    folder: '/etc/sealane',
    name: 'milano',
    objects: '/etc/sealane/objects',
    state: '/var/lib/sealane',
    identity: '/var/lib/sealane/identity',
    podCIDRs: ['10.42.0.0/16'],
    serviceCIDRs: ['10.43.0.0/16'],
    labels: { region: 'eu-south' },
    allowedNamespaces: [],
    excludedNamespaces: [],
    gateways: [
      { node: 'gw', lane: 0, publicAddress: '192.0.2.10' },
      { node: 'gw2', lane: 1 },
    ],
    activeGateways: 2,
    openHostPorts: [
      { protocol: 'tcp', port: 9100 },
      { protocol: 'udp', port: 514 },
    ],
    hub: { listen: [] },
    overlay: { port: 4810, checksumOffload: 'auto' },
    dns: {
      listen: ['10.42.0.1:53'],
      upstreams: ['192.0.2.53:53', '[fd00::1]:5353', '[fd00::2]:53'],
      forwardFor: ['192.168.0.0/16'],
    },
  })
})

t.test('failClosed that is not stated is not false', async (t) => {
  const failClosedOf = (line: string): boolean | undefined =>
    parseSiteFile(
      '/s/site.yaml',
      `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: a}\nspec: {podCIDRs: [10.1.0.0/16]${line}}\n`,
    ).failClosed
  t.equal(failClosedOf(''), undefined)
  t.equal(failClosedOf(', failClosed: false'), false)
  t.equal(failClosedOf(', failClosed: true'), true)
})

t.test('only what is needed', async (t) => {
  const text = 'apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: a}\nspec: {podCIDRs: [10.1.0.0/16]}\n'
  t.match(parseSiteFile('/s/site.yaml', text), {
    objects: '/s/objects',
    state: '/s/state',
    serviceCIDRs: [],
    gateways: [],
    openHostPorts: [],
    hub: { listen: [] },
    overlay: { port: 4810, checksumOffload: 'auto' },
    dns: { listen: [], upstreams: [], forwardFor: [] },
  })
})

t.test('how many gateways are active at once, of those without a number', async (t) => {
  const site = (spec: string): string =>
    `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: a}\nspec:\n  podCIDRs: [10.1.0.0/16]\n${spec}`
  t.equal(parseSiteFile('/s/site.yaml', site('  kubernetes: {}\n')).activeGateways, 2)
  t.equal(parseSiteFile('/s/site.yaml', site('  kubernetes: {}\n  activeGateways: 8\n')).activeGateways, 8)
  for (const [spec, message] of [
    ['  kubernetes: {}\n  activeGateways: 0\n', /site\.yaml:7:\d+: spec\.activeGateways: expected 1 to 8, got 0/],
    ['  kubernetes: {}\n  activeGateways: 9\n', /spec\.activeGateways: expected 1 to 8, got 9/],
    ['  kubernetes: {}\n  activeGateways: two\n', /spec\.activeGateways: expected 1 to 8, got "two"/],
    ['  activeGateways: 2\n', /spec\.activeGateways: only where a gateway of spec\.gateways has no lane of its own/],
    [
      '  gateways: [{ node: gw, lane: 0 }]\n  activeGateways: 2\n',
      /site\.yaml:7:\d+: spec\.activeGateways: only where a gateway of spec\.gateways has no lane of its own/,
    ],
  ] as const) {
    t.throws(() => parseSiteFile('/s/site.yaml', site(spec)), { message })
  }
})

t.test('lists of namespaces are no longer than a Membership carries', async (t) => {
  const site = (field: string, count: number): string =>
    `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: a}\nspec:\n  podCIDRs: [10.1.0.0/16]\n` +
    `  ${field}: [${Array.from({ length: count }, (_, i) => `n${i}`).join(', ')}]\n`
  for (const field of ['allowedNamespaces', 'excludedNamespaces'] as const) {
    t.equal(parseSiteFile('/s/site.yaml', site(field, 256))[field].length, 256)
    t.throws(() => parseSiteFile('/s/site.yaml', site(field, 257)), {
      message: new RegExp(`site\\.yaml:6:\\d+: spec\\.${field}: expected at most 256 entries, got \\[`),
    })
  }
})

t.test('a gateway behind a router: a name, and ports inside and outside', async (t) => {
  const site = (gateways: string): string =>
    `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: a}\nspec: {podCIDRs: [10.1.0.0/16], gateways: [${gateways}]}\n`
  const read = (gateways: string) => parseSiteFile('/s/site.yaml', site(gateways)).gateways
  const calls = { publicAddress: 'gw.example.org', publicPort: 51820, listenPort: 60000 }
  t.strictSame(read('{ node: gw, publicAddress: gw.example.org, publicPort: 51820, listenPort: 60000 }'), [
    { node: 'gw', ...calls },
  ])
  t.strictSame(read('{ node: gw, relay: true }'), [{ node: 'gw', relay: true }])
  t.strictSame(read('{ node: gw, portMapping: false }'), [{ node: 'gw', portMapping: false }])
  const two = (a: string, b: string): string =>
    `{ node: a, publicAddress: gw.example.org${a} }, { node: b, publicAddress: gw.example.org${b} }`
  t.equal(read(two('', ', publicPort: 4508')).length, 2, 'eight ports each')
  t.equal(read(two('', '')).length, 2, 'one may be on standby for the other')
  const rows: readonly (readonly [gateways: string, want: string])[] = [
    [
      two(', publicPort: 51820', ', publicPort: 51827'),
      'spec.gateways[1].publicPort: spec.gateways[0] has the same public address: expected a publicPort with 8 ports of its own, not 51827 to 51834',
    ],
    [
      two(', publicPort: 4501', ''),
      'spec.gateways[1].publicAddress: spec.gateways[0] has the same public address: expected a publicPort with 8 ports of its own, not 4500 to 4507',
    ],
    ['{ node: gw, publicPort: 65529 }', 'spec.gateways[0].publicPort: expected 1 to 65528, got 65529'],
    ['{ node: gw, relay: yes }', 'spec.gateways[0].relay: expected true, got'],
    ['{ node: gw, portMapping: off }', 'spec.gateways[0].portMapping: expected false, got'],
    [
      '{ node: gw, relay: true, listenPort: 4593 }',
      'spec.gateways[0].relay: ports 4600 to 4799 are for relayed packets, and 4593 to 4600 are for lanes',
    ],
    [
      '{ node: gw, relay: true, publicAddress: gw.example.org, publicPort: 51820 }',
      'spec.gateways[0].relay: ports 4600 to 4799 are for relayed packets, outside too: expected 4500 as the public port, or none, not 51820',
    ],
    [
      '{ node: gw, listenPort: 4575 }',
      'spec.gateways[0].listenPort: expected ports that Sealane does not use itself: 4575 to 4582 contain 4580, for questions to relays',
    ],
    ['{ node: gw, listenPort: "4500" }', 'spec.gateways[0].listenPort: expected'],
    [
      '{ node: gw, listenPort: 4805 }',
      'spec.gateways[0].listenPort: expected ports that Sealane does not use itself: 4805 to 4812 contain 4810, for the overlay between nodes',
    ],
    [
      '{ node: gw, publicAddress: 2001:db8::1 }',
      'spec.gateways[0].publicAddress: expected an IPv4 address or a DNS name',
    ],
    ['{ node: gw, port: 51820 }', 'spec.gateways[0].port'],
  ]
  for (const [gateways, want] of rows) {
    const said = await messageOf(() => parseSiteFile('/s/site.yaml', site(gateways)))
    t.ok(said.includes(want), said)
  }
})

t.test('gateways without a number, beside one that has it', async (t) => {
  const gateways = '{ node: gw }, { node: gw2, publicAddress: 192.0.2.10 }, { node: gw3, lane: 7 }'
  const text = `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: a}\nspec: {podCIDRs: [10.1.0.0/16], gateways: [${gateways}], activeGateways: 2}\n`
  const { gateways: rows, activeGateways } = parseSiteFile('/s/site.yaml', text)
  t.same(rows, [{ node: 'gw' }, { node: 'gw2', publicAddress: '192.0.2.10' }, { node: 'gw3', lane: 7 }])
  t.equal(activeGateways, 2)
  t.throws(
    () => parseSiteFile('/s/site.yaml', text.replace('gw2', 'gw')),
    /spec\.gateways\[1\]\.node: expected a node of its own, spec\.gateways\[0\] has node gw already/,
  )
})

t.test('the age of a key', async (t) => {
  const site = (days: string): string =>
    `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: a}\nspec:\n  podCIDRs: [10.1.0.0/16]\n${days}`
  for (const [days, expected] of [
    ['', undefined],
    ['  keyRotationDays: 0\n', 0],
    ['  keyRotationDays: 90\n', 90],
  ] as const) {
    t.equal(parseSiteFile('/s/site.yaml', site(days)).keyRotationDays, expected)
  }
  for (const [days, message] of [
    ['  keyRotationDays: -1\n', /spec\.keyRotationDays: expected 0 to 3650, got -1/],
    ['  keyRotationDays: 0.5\n', /spec\.keyRotationDays/],
    ['  keyRotationDays: never\n', /spec\.keyRotationDays: expected 0 to 3650, got "never"/],
  ] as const) {
    t.throws(() => parseSiteFile('/s/site.yaml', site(days)), { message })
  }
})

t.test('when links sleep', async (t) => {
  const site = (minutes: string): string =>
    `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: a}\nspec:\n  podCIDRs: [10.1.0.0/16]\n${minutes}`
  for (const [minutes, expected] of [
    ['', undefined],
    ['  linkSleepMinutes: 0\n', 0],
    ['  linkSleepMinutes: 30\n', 30],
  ] as const) {
    t.equal(parseSiteFile('/s/site.yaml', site(minutes)).linkSleepMinutes, expected)
  }
  t.throws(() => parseSiteFile('/s/site.yaml', site('  linkSleepMinutes: 1441\n')), {
    message: /spec\.linkSleepMinutes: expected 0 to 1440, got 1441/,
  })
})

t.test('namespaces that are imported all the same', async (t) => {
  const text = (names: string): string =>
    `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: a}\nspec: {podCIDRs: [10.1.0.0/16], allowedNamespaces: ${names}}\n`
  t.same(parseSiteFile('/s/site.yaml', text('[default, kube-tools]')).allowedNamespaces, ['default', 'kube-tools'])
  t.throws(
    () => parseSiteFile('/s/site.yaml', text('[Default]')),
    /spec.allowedNamespaces\[0\]: expected an RFC 1123 label/,
  )
})

t.test('mistakes, with place and reason', async (t) => {
  const rows: readonly (readonly [from: string, to: string, want: string])[] = [
    [
      'milano',
      'Milano',
      'site.yaml:3:19: metadata.name: expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -, got "Milano"',
    ],
    [
      'udp/514',
      'udp/99999',
      'site.yaml:14:29: spec.openHostPorts[1]: expected a protocol and a port such as tcp/9100 or udp/53, got "udp/99999"',
    ],
    ['kind: Site', 'kind: Cluster', 'site.yaml:2:7: kind: expected one of Site, got "Cluster"'],
    [
      '[10.42.0.0/16]',
      '[10.42.0.0/33]',
      'site.yaml:7:14: spec.podCIDRs[0]: expected a CIDR without host bits such as 10.42.0.0/16, got "10.42.0.0/33"',
    ],
    ['[10.42.0.0/16]', '10.42.0.0/16', 'site.yaml:7:13: spec.podCIDRs: expected a list, got "10.42.0.0/16"'],
    ['[10.42.0.0/16]', '[]', 'site.yaml:7:13: spec.podCIDRs: expected at least one CIDR'],
    [
      '10.43.0.0/16',
      '10.42.128.0/17',
      'site.yaml:8:18: spec.serviceCIDRs[0]: 10.42.128.0/17 overlaps spec.podCIDRs[0], 10.42.0.0/16',
    ],
    [
      'lane: 1',
      'lane: 0',
      'site.yaml:12:26: spec.gateways[1].lane: expected a lane of its own, spec.gateways[0] has lane 0 already',
    ],
    [
      'node: gw2',
      'node: gw',
      'site.yaml:12:15: spec.gateways[1].node: expected a node of its own, spec.gateways[0] has node gw already',
    ],
    ['lane: 1', 'lane: 256', 'site.yaml:12:26: spec.gateways[1].lane: expected 0 to 7, got 256'],
    [
      '192.0.2.10',
      'gw.example.org:51820',
      'site.yaml:11:43: spec.gateways[0].publicAddress: expected an IPv4 address or a DNS name such as gw.example.org, got "gw.example.org:51820"',
    ],
    [
      '10.42.0.1:53',
      '10.42.0.1:dns',
      'site.yaml:13:19: spec.dns.listen[0]: expected address:port such as 10.42.0.1:53, got "10.42.0.1:dns"',
    ],
    [
      '10.42.0.1:53',
      '10.42.0.1',
      'site.yaml:13:19: spec.dns.listen[0]: expected address:port such as 10.42.0.1:53, got "10.42.0.1"',
    ],
    [
      '10.42.0.1:53',
      '10.42.0.1:99999',
      'site.yaml:13:19: spec.dns.listen[0]: expected address:port such as 10.42.0.1:53, got "10.42.0.1:99999"',
    ],
    ['eu-south', '7', 'site.yaml:9:21: spec.labels.region: expected text, got 7'],
    ['serviceCIDRs', 'serviceCidrs', 'site.yaml:8:17: spec.serviceCidrs: no such field'],
    [
      '  state: /var',
      '   state: /var',
      'site.yaml:5:12: Nested mappings are not allowed in compact mappings\nsite.yaml:5:12: Implicit keys need to be on a single line',
    ],
  ]
  for (const [from, to, want] of rows) {
    const error = await failure(() => parseSiteFile('site.yaml', GOOD.replace(from, to)))
    t.equal(error.name, 'InvalidFileError', to)
    t.equal(error.message, want, to)
  }
  t.equal(
    await messageOf(() => parseSiteFile('site.yaml', `${GOOD}---\n${GOOD}`)),
    'site.yaml:1:1: expected one document of kind Site, got 2',
  )
  t.equal(
    await messageOf(() => parseSiteFile('site.yaml', '')),
    'site.yaml:1:1: expected one document of kind Site, got 0',
  )
})

t.test('all mistakes are told together', async (t) => {
  const text = GOOD.replace('milano', 'M').replace('lane: 1', 'lane: x')
  t.equal(
    await messageOf(() => parseSiteFile('site.yaml', text)),
    'site.yaml:3:19: metadata.name: expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -, got "M"\n' +
      'site.yaml:12:26: spec.gateways[1].lane: expected 0 to 7, got "x"',
  )
})

t.test('a file that is not there', async (t) => {
  const path = join(temporaryFolder(t), 'site.yaml')
  const error = await failure(readSiteFile(path))
  t.equal(`${error.name} ${error.message}`, `InvalidFileError ${path}:1:1: no such file`)
})

t.test('no text makes it throw anything else', async () => {
  const edits = fc.tuple(fc.nat(GOOD.length), fc.nat(6), fc.string({ maxLength: 4 }))
  fc.assert(
    fc.property(edits, ([at, cut, put]) => {
      try {
        parseSiteFile('site.yaml', GOOD.slice(0, at) + put + GOOD.slice(at + cut))
        return true
      } catch (error) {
        return (error as Error).name === 'InvalidFileError'
      }
    }),
    { numRuns: 500 },
  )
})

t.test('the port of the overlay', async (t) => {
  const text = (overlay: string, more = ''): string =>
    `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: a}\nspec:\n  podCIDRs: [10.1.0.0/16]\n  overlay: ${overlay}\n${more}`
  const portOf = (overlay: string, more?: string): number =>
    parseSiteFile('/s/site.yaml', text(overlay, more)).overlay.port
  t.equal(portOf('{}'), 4810)
  for (const setting of ['auto', 'on', 'off'])
    t.equal(parseSiteFile('/s/site.yaml', text(`{ checksumOffload: ${setting} }`)).overlay.checksumOffload, setting)
  for (const port of [1, 443, 4497, 4508, 4789, 8472, 65_535]) t.equal(portOf(`{ port: ${port} }`), port)
  const dns = "  dns: { listen: ['10.1.0.1:5353'] }\n"
  t.equal(portOf('{ port: 5353 }', `${dns}  kubernetes: {}\n`), 5353, 'in a cluster, dns has a network of its own')
  const unused = 'expected a port that Sealane does not use itself'
  const rows: readonly (readonly [overlay: string, want: string, more?: string])[] = [
    ['{ port: 0 }', '6:20: spec.overlay.port: expected 1 to 65535, got 0'],
    ['{ port: 65536 }', '6:20: spec.overlay.port: expected 1 to 65535, got 65536'],
    ['{ port: "4811" }', '6:20: spec.overlay.port: expected 1 to 65535, got "4811"'],
    ['{ prot: 4811 }', '6:20: spec.overlay.prot: no such field'],
    ['{ checksumOffload: never }', '6:31: spec.overlay.checksumOffload: expected one of auto, on, off, got "never"'],
    ['4811', '6:12: spec.overlay: expected a map, got 4811'],
    ['{ port: 4498 }', `6:20: spec.overlay.port: ${unused}: 4498 is for probes between nodes, got 4498`],
    ['{ port: 4499 }', `6:20: spec.overlay.port: ${unused}: 4499 is for probes inside lanes, got 4499`],
    ['{ port: 4500 }', `6:20: spec.overlay.port: ${unused}: 4500 to 4507 are for lanes, got 4500`],
    ['{ port: 4507 }', `6:20: spec.overlay.port: ${unused}: 4500 to 4507 are for lanes, got 4507`],
    ['{ port: 5353 }', '6:20: spec.overlay.port: spec.dns.listen has 10.1.0.1:5353: expected another port', dns],
    [
      '{ port: 51822 }',
      '7:38: spec.gateways[0].listenPort: expected ports that Sealane does not use itself: 51820 to 51827 contain 51822, for the overlay between nodes',
      '  gateways: [{ node: gw, listenPort: 51820 }]\n',
    ],
  ]
  for (const [overlay, want, more] of rows) {
    t.equal(
      (await failure(() => portOf(overlay, more))).message,
      `site.yaml:${want}`.replace('site', '/s/site'),
      overlay,
    )
  }
})
