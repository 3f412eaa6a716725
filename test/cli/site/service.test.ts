/** `sealane service`: the objects that it writes, its answers, and its messages after a mistake. */
import { existsSync, mkdirSync, readdirSync } from 'node:fs'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { parse as parseYaml } from 'yaml'
import { parseBackends, parseServicePort, planService, serviceLines } from '../../../cli/site/plan-service.ts'
import type { EndpointSlice, Service } from '../../../model/objects.ts'
import { type CliResult, runCli } from '../run-cli.ts'
import { SiteFolder } from '../site-folder.ts'

const NODES = `apiVersion: v1
kind: Node
metadata: { name: w1, labels: { topology.kubernetes.io/zone: a } }
spec: { podCIDRs: [10.42.1.0/24] }
---
apiVersion: v1
kind: Node
metadata: { name: w2 }
spec: { podCIDRs: [10.42.2.0/24] }
`

function siteWith(t: Test): { site: SiteFolder; service: (text: string) => Promise<CliResult> } {
  const site = new SiteFolder(t)
  mkdirSync(site.path('objects'), { recursive: true })
  site.write('objects/nodes.yaml', NODES)
  return { site, service: (text) => runCli(['service', ...text.split(' '), '--site', site.file]) }
}

const files = (site: SiteFolder): string[] => readdirSync(site.path('objects')).sort()

t.test('add writes a Service and a slice; again changes nothing; other options show the difference', async (t) => {
  const { site, service } = siteWith(t)
  const first = await service('add web -n shop --port 8080 --backend 10.42.1.30,10.42.2.30 --check http:/healthz')
  t.equal(first.code, 0, first.stderr)
  t.equal(
    first.stdout,
    `service shop/web added
  + port 8080/TCP
  + backend 10.42.1.30 port 8080 on w1 in zone a
  + backend 10.42.2.30 port 8080 on w2
  + check http:/healthz interval=2s timeout=1s fall=2 rise=1
`,
  )
  t.match(first.stderr, /other sites cannot call it yet: sealane export web -n shop --site /)
  t.same(files(site), ['endpointslice-shop-web-ipv4.yaml', 'nodes.yaml', 'service-shop-web.yaml'])
  t.match(parseYaml(site.read('objects/service-shop-web.yaml')), {
    kind: 'Service',
    metadata: { name: 'web', namespace: 'shop' },
    spec: { ipFamilies: ['IPv4'], ports: [{ protocol: 'TCP', port: 8080 }] },
  })
  t.match(parseYaml(site.read('objects/endpointslice-shop-web-ipv4.yaml')), {
    metadata: { annotations: { 'sealane.io/check': 'http:/healthz interval=2s timeout=1s fall=2 rise=1' } },
    addressType: 'IPv4',
    endpoints: [
      { addresses: ['10.42.1.30'], nodeName: 'w1', zone: 'a' },
      { addresses: ['10.42.2.30'], nodeName: 'w2' },
    ],
  })

  const before = site.read('objects/endpointslice-shop-web-ipv4.yaml')
  const again = await service(
    'add web -n shop --port 8080 --backend 10.42.2.30 --backend 10.42.1.30 --check http:/healthz',
  )
  t.equal(again.stdout, 'service shop/web is unchanged\n', 'the order of backends is no difference')
  t.equal(site.read('objects/endpointslice-shop-web-ipv4.yaml'), before)

  const other = await service(
    'add web -n shop --port 80:8080 --backend 10.42.1.30,10.42.1.31:9090 --check tcp --export',
  )
  t.equal(
    other.stdout,
    `service shop/web changed
  - port 8080/TCP
  - backend 10.42.2.30 port 8080 on w2
  - check http:/healthz interval=2s timeout=1s fall=2 rise=1
  + port 80/TCP to 8080
  + backend 10.42.1.31 port 9090 on w1 in zone a
  + check tcp interval=2s timeout=1s fall=2 rise=1
`,
  )
  t.equal(other.stderr, '')
  t.ok(site.has('objects/serviceexport-shop-web.yaml'), 'exported')
  t.ok(site.has('objects/endpointslice-shop-web-ipv4-9090.yaml'), 'another target port is another slice')
  const back = await service('add web -n shop --port 80:8080 --backend 10.42.1.30 --check none')
  t.equal(back.code, 0, back.stderr)
  t.notOk(site.has('objects/endpointslice-shop-web-ipv4-9090.yaml'), 'a slice without backends is removed')
  t.ok(site.has('objects/serviceexport-shop-web.yaml'), 'the export stays as it is')
  const hidden = await service('add web -n shop --port 80:8080 --backend 10.42.1.30 --check none --no-export')
  t.match(hidden.stderr, /cannot call it yet/)
  t.notOk(site.has('objects/serviceexport-shop-web.yaml'))
})

t.test('what the user has added to the Service by hand is kept', async (t) => {
  const { site, service } = siteWith(t)
  await service('add web -n shop --port 80 --backend 10.42.1.30')
  const edited = site.read('objects/service-shop-web.yaml').replace('spec:\n', 'spec:\n  sessionAffinity: ClientIP\n')
  site.write('objects/service-shop-web.yaml', edited)
  await service('add web -n shop --port 81 --backend 10.42.1.30')
  t.match(parseYaml(site.read('objects/service-shop-web.yaml')), {
    spec: { sessionAffinity: 'ClientIP', ports: [{ port: 81 }] },
  })
})

t.test('list, as a table and for programs; remove', async (t) => {
  const { site, service } = siteWith(t)
  t.equal((await service('list')).stderr, 'none\n')
  await service('add web -n shop --port http:80:8080 --port dns:53/udp --backend 10.42.1.30,10.42.9.1')
  const table = await service('list')
  t.match(table.stdout, /NAMESPACE +NAME +PORTS +EXPORTED +BACKEND +NODE +STATE +SINCE +MESSAGE/)
  t.match(table.stdout, /shop +web +http:80\/TCP,dns:53\/UDP +no +10\.42\.1\.30 +w1 +unchecked +- +-/)
  t.match(JSON.parse((await service('list -o json')).stdout), {
    items: [
      { namespace: 'shop', name: 'web', backend: '10.42.1.30', state: 'unchecked', check: /^tcp / },
      { backend: '10.42.9.1', state: 'unchecked' },
    ],
  })
  const removed = await service('remove web -n shop')
  t.equal(removed.stdout, 'service shop/web removed\n')
  t.same(files(site), ['nodes.yaml'])
  const twice = await service('remove web -n shop')
  t.same([twice.code, twice.stdout], [0, 'service shop/web does not exist\n'])
})

t.test('answers for programs, warnings, IPv6, UDP', async (t) => {
  const { site, service } = siteWith(t)
  site.write('site.yaml', site.read('site.yaml').replace('[10.42.0.0/16]', '[10.42.0.0/16, "fd00:42::/48"]'))
  const added = await service('add db -n shop --port 53/udp --backend [fd00:42::1]:5353,10.42.1.5 -o json')
  t.equal(added.code, 0, added.stderr)
  t.match(JSON.parse(added.stdout), { namespace: 'shop', name: 'db', change: 'added', exported: false })
  t.match(added.stderr, /warning: backend fd00:42::1 is in the podCIDRs of no Node: gateways have no way to it/)
  t.same(files(site).slice(0, 2), ['endpointslice-shop-db-ipv4.yaml', 'endpointslice-shop-db-ipv6-5353.yaml'])
  t.notMatch(site.read('objects/endpointslice-shop-db-ipv4.yaml'), /check/, 'UDP has no check unless it is named')
  const checked = await service('add db -n shop --port 53/udp --backend 10.42.1.5 --check tcp:9000 --interval 500ms')
  t.match(checked.stdout, /\+ check tcp:9000 interval=500ms timeout=500ms fall=2 rise=1/)
  const guarded = await service('add db --port 53/udp --backend 10.42.1.5')
  t.match(guarded.stderr, /namespace default .* only with --allow-namespace default/)
})

t.test('mistakes: exit code 2, the option, the value and what was expected; nothing is written', async (t) => {
  const { site, service } = siteWith(t)
  const rows: readonly (readonly [string, RegExp])[] = [
    ['add Web --port 80 --backend 10.42.1.1', /service "Web": expected an RFC 1123 label/],
    ['add web --backend 10.42.1.1', /--port: expected at least one/],
    ['add web --port 80', /--backend: expected at least one/],
    ['add web --port http --backend 10.42.1.1', /--port "http": expected \[name:\]port/],
    ['add web --port 0 --backend 10.42.1.1', /--port "0": expected ports from 1 to 65535/],
    ['add web --port 80:70000 --backend 10.42.1.1', /--port "80:70000": expected ports from 1 to 65535/],
    ['add web --port 80/icmp --backend 10.42.1.1', /--port "80\/icmp": expected \[name:\]port/],
    ['add web --port 80 --port 80 --backend 10.42.1.1', /--port 80\/TCP: expected/],
    ['add web --port 80 --port 81 --backend 10.42.1.1', /--port 80\/TCP: expected a name, as in http:80/],
    ['add web --port a:80 --port a:81 --backend 10.42.1.1', /--port "a:81": expected a name of its own/],
    [
      'add web --port 80 --backend web1.example.org',
      /"web1.example.org": expected an IP address.*host names are not resolved/,
    ],
    ['add web --port 80 --backend localhost', /"localhost": expected an IP address.*host names are not resolved/],
    ['add web --port 80 --backend 10.42.1.1,', /--backend "": expected an IP address/],
    ['add web --port 80 --backend 10.42.1.256', /--backend "10.42.1.256": expected an IP address/],
    [
      'add web --port 80 --backend 127.0.0.1',
      /--backend "127.0.0.1": expected an address that other sites can reach, got a loopback/,
    ],
    ['add web --port 80 --backend ::ffff:127.0.0.1', /got a loopback address/],
    [
      'add web --port 80 --backend 10.99.0.1',
      /--backend 10.99.0.1: expected an address in the podCIDRs of this site \(10\.42\.0\.0\/16\)/,
    ],
    ['add web --port 80 --backend 10.42.1.1,10.42.1.1', /--backend 10.42.1.1: expected each backend once/],
    ['add web --port 80 --backend 10.42.1.1,10.42.1.1:80', /--backend 10.42.1.1:80: expected each backend once/],
    ['add web --port 80:8080 --backend 10.42.1.1:8080,10.42.1.1', /--backend 10.42.1.1: expected each backend once/],
    ['add web --port 80 --backend 10.42.0.0', /--backend 10.42.0.0: .*, got the network address of 10.42.0.0\/16/],
    ['add web --port 80 --backend 10.42.255.255', /got the broadcast address of 10.42.0.0\/16/],
    ['add web --port a:80 --port b:81 --backend 10.42.1.1:90', /expected an address without a port/],
    ['add web --port 80 --backend 10.42.1.1 --check icmp', /--check "icmp": expected tcp/],
    ['add web --port 80 --backend 10.42.1.1 --check http:healthz', /--check "http:healthz": expected tcp/],
    ['add web --port 53/udp --backend 10.42.1.1 --check tcp', /--check tcp: expected a port, as in tcp:9000, or none/],
    ['add web --port 80 --backend 10.42.1.1 --check none --fall 2', /--fall: expected a --check other than none/],
    ['add web --port 80 --backend 10.42.1.1 --interval 2', /--interval "2": expected a duration/],
    [
      'add web --port 80 --backend 10.42.1.1 --interval 1s --timeout 2s',
      /--timeout 2s: expected a timeout that is not longer/,
    ],
    ['add web --port 80 --backend 10.42.1.1 --fall 0', /--fall "0": expected 1 to 20/],
    ['add web --port 80 --backend 10.42.1.1 --rise many', /--rise "many": expected 1 to 20/],
    ['delete web', /unknown command 'delete': expected add, remove, list/],
  ]
  for (const [words, want] of rows) {
    const { code, stderr } = await service(words)
    t.match(stderr, want, words)
    t.equal(code, 2, words)
  }
  t.same(files(site), ['nodes.yaml'])
})

t.test('objects that the user has written are neither changed nor removed', async (t) => {
  const { site, service } = siteWith(t)
  const own = `apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { ports: [{ port: 80 }] }
`
  site.write('objects/web.yaml', own)
  for (const words of ['add web -n shop --port 80 --backend 10.42.1.1', 'remove web -n shop']) {
    const { code, stderr } = await service(words)
    t.equal(code, 1)
    t.match(stderr, /Service shop\/web is among the objects of this site and was not written by sealane service add/)
  }
  t.equal(site.read('objects/web.yaml'), own)
  const slice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: db-1, namespace: shop, labels: { kubernetes.io/service-name: db } }
addressType: IPv4
endpoints: []
`
  site.write('objects/db.yaml', slice)
  const { stderr } = await service('add db -n shop --port 80 --backend 10.42.1.1')
  t.match(stderr, /EndpointSlice shop\/db-1 is among the objects/)
  t.notOk(existsSync(site.path('objects/service-shop-db.yaml')), 'nothing is written before the refusal')
})

t.test('a check that cannot be read is a problem of its file, with line and column', async (t) => {
  const { site, service } = siteWith(t)
  site.write(
    'objects/bad.yaml',
    `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: db-1
  namespace: shop
  annotations:
    sealane.io/check: ping
addressType: IPv4
`,
  )
  const { stderr } = await service('list')
  t.match(stderr, /bad\.yaml:7:\d+: metadata\.annotations\.sealane\.io\/check: expected tcp, .*, got "ping"/)
})

t.test('blanks around the commas of backends are left out', async (t) => {
  t.strictSame(parseBackends('10.42.1.1, 10.42.1.2:80 '), parseBackends('10.42.1.1,10.42.1.2:80'))
})

t.test('no text makes the parsers fail otherwise, and a plan has each backend once', async () => {
  const text = fc.oneof(fc.string(), fc.stringMatching(/^[a-z0-9:/.[\],]{0,20}$/))
  const invalid = (parse: () => unknown): string => {
    try {
      parse()
      return ''
    } catch (error) {
      return (error as Error).name
    }
  }
  fc.assert(
    fc.property(text, (one) => {
      for (const parse of [parseServicePort, parseBackends]) {
        t.equal(['', 'InvalidNameError'].includes(invalid(() => parse(one))), true, one)
      }
    }),
  )
  const hosts = fc.uniqueArray(fc.integer({ min: 1, max: 250 }), { minLength: 1, maxLength: 20 })
  fc.assert(
    fc.property(hosts, fc.integer({ min: 1, max: 65_535 }), fc.func(fc.boolean()), (numbers, port, own) => {
      const backends = numbers.flatMap((n) => parseBackends(own(n) ? `10.42.1.${n}:9090` : `10.42.1.${n}`))
      const ports = [parseServicePort(`${port}`)]
      const wanted = { namespace: 'shop', name: 'web', ports, backends, check: undefined }
      const { service, slices } = planService(wanted, [])
      const found = slices.flatMap(({ endpoints = [] }: EndpointSlice) =>
        endpoints.flatMap(({ addresses }) => addresses),
      )
      t.same([...found].sort(), numbers.map((n) => `10.42.1.${n}`).sort())
      t.equal(new Set(slices.map(({ metadata }) => metadata.name)).size, slices.length)
      const again = planService(wanted, [], service satisfies Service)
      t.strictSame(
        serviceLines(again.service, again.slices),
        serviceLines(service, slices),
        'a plan of a plan is the same',
      )
    }),
  )
})
