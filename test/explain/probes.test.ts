/** What the probes of `diagnose` find, and which problems they explain. */
import t from 'tap'
import { diagnoseMember } from '../../explain/diagnose-member.ts'
import type { Fact } from '../../explain/facts/fact.ts'
import type { ProbeItems, ProbeKind } from '../../explain/facts/probe-shapes.ts'
import { parseRuleset } from '../../kernel/look/parse-ruleset.ts'
import { CONDITION_CLUSTER_DNS } from '../../model/conditions.ts'
import {
  HEALTHY_BROKER,
  NOW,
  condition,
  factSet,
  copyOf,
  healthyObjects,
  healthyReports,
} from '../support/objects/member-facts.ts'
import { DOWN, type Loose, brokenMember, changeLinks, linesOf } from './broken-member.ts'

const DEVICES = [
  { name: 'cni0', addresses: ['10.42.1.1'] },
  { name: 'sealane0', addresses: ['246.0.0.1'] },
]

function host(rules: readonly object[], rest: object = {}): ProbeItems['host'] {
  const tables = ['sealane_gateway', 'sealane_node'].map((name) => ({ table: { family: 'ip', name } }))
  const firewall = parseRuleset({ nftables: [...tables, ...rules] }, 'sealane_')
  return JSON.parse(
    JSON.stringify({ node: 'gw0', devices: DEVICES, sysctls: {}, disks: [], firewall, ...rest }),
  ) as never
}

function said<K extends ProbeKind>(kind: K, items: readonly ProbeItems[K][], objects = healthyObjects()): string[] {
  const set = factSet(objects)
  const probe = { t: 'probe', kind, source: 'here', at: NOW, items }
  return linesOf(diagnoseMember({ ...set, facts: [...set.facts, probe] }).problems)
}

const hostFact = (item: ProbeItems['host']): Fact => ({
  t: 'probe',
  kind: 'host',
  source: 'here',
  at: NOW,
  items: [item],
})

const differs = (key: string, value: string, found: string): object => {
  return { name: `net/ipv4/conf/sealane0/${key}`, value, found }
}

const place = { family: 'ip', table: 'filter' }
const chain = (hook: string, policy: string): object => ({
  chain: { ...place, name: hook, type: 'filter', hook, prio: 0, policy },
})
const rule = (hook: string, ...expr: object[]): object => ({ rule: { ...place, chain: hook, expr } })
const dport = (right: unknown): object => ({
  match: { op: '==', left: { payload: { protocol: 'udp', field: 'dport' } }, right },
})

t.test('firewalls', async (t) => {
  const down = brokenMember((at) => changeLinks(at, (_, node) => node === 'gw0', DOWN))
  const drops = [chain('input', 'accept'), rule('input', dport({ range: [4500, 4507] }), { drop: null })]
  const cause = 'down FirewallDrops Node gw0'
  t.same(said('host', [host(drops)], down), [`${cause} (LaneProbeTimeout ×4, GatewayCutOff ×1)`])
  t.same(said('host', [host(drops)]), [], 'while links are up, nothing is dropped')
  t.same(said('host', [host([chain('forward', 'drop')])]), [cause], 'policy of what is handed on')
  t.same(said('host', [host([chain('forward', 'drop'), rule('forward', { accept: null })])]), [])
  const unknown = [chain('forward', 'drop'), rule('forward', { xt: { type: 'match' } }, { accept: null })]
  t.same(said('host', [host(unknown)]), [], 'what nobody understands may let it pass')
})

t.test('all places of a machine that drop packets are one problem, and its text names them', async (t) => {
  const seen = (rules: readonly object[]): readonly string[] => {
    const { facts, ...set } = factSet(brokenMember((at) => changeLinks(at, (_, node) => node === 'gw0', DOWN)))
    const { problems } = diagnoseMember({ ...set, facts: [...facts, hostFact(host(rules))] })
    return problems.flatMap((one) => (one.reason === 'FirewallDrops' ? [one.seen] : []))
  }
  const input = [chain('input', 'accept'), rule('input', dport(4500), { drop: null })]
  const both = ['connections from cni0 to sealane0', 'connections from sealane0 to cni0']
  const [first, second] = ['a rule of table ip filter, chain input', 'its policy of table ip filter, chain forward']
  t.same(seen(input), [`${first} drops incoming UDP 4500`])
  t.same(seen([...input, chain('forward', 'drop')]), [
    `${first}, ${second} drops ${both.join(', ')}, incoming UDP 4500`,
  ])
  const prerouting = [chain('prerouting', 'accept'), rule('prerouting', dport(4501), { drop: null })]
  const [text = ''] = seen([...input, ...prerouting, chain('forward', 'drop'), chain('output', 'drop')])
  t.match(
    text,
    /^a rule of .* chain input, a rule of .* chain prerouting, its policy of .* chain forward and 1 more drops/,
  )
})

t.test('a backend that does not reach itself is said with the command, and is no fault of the member', async (t) => {
  const cut = { cutOffFromSelf: [{ address: '10.42.1.5', command: 'bridge link set dev veth1 hairpin on' }] }
  t.same(said('host', [host([], cut)]), ['notice HairpinOff Node gw0'])
  t.same(said('host', [host([], { cutOffFromSelf: [] })]), [])
})

t.test('firewalls of a worker that does not hear its gateway nodes', async (t) => {
  const cut = brokenMember((at) => {
    const worker = at('RouteAgent').find(({ metadata }) => metadata.name === 'w0')
    if (worker === undefined) return
    worker.status['silentNodes'] = ['gw0', 'gw1']
    for (const one of worker.status.clusters) one.gateways = []
  })
  const devices = [DEVICES[0], { name: 'sealane-vx', addresses: ['169.254.231.2'] }]
  const worker = { node: 'w0', devices }
  const cause = 'down FirewallDrops Node w0'
  const input = [chain('input', 'accept'), rule('input', dport(4810), { drop: null })]
  t.same(said('host', [host(input, worker)], cut), [`${cause} (NodesCutOff ×1)`], 'packets of the overlay')
  const iif = { match: { op: '==', left: { meta: { key: 'iifname' } }, right: 'sealane-vx' } }
  const device = [chain('input', 'accept'), rule('input', iif, { drop: null })]
  t.same(said('host', [host(device, worker)], cut), [`${cause} (NodesCutOff ×1)`], 'what comes out of the overlay')
  const output = [chain('output', 'accept'), rule('output', dport(4810), { drop: null })]
  t.same(said('host', [host(output, worker)], cut), [`${cause} (NodesCutOff ×1)`], 'what is sent')
  t.same(said('host', [host(input, worker)]), [], 'while all answer, nothing is dropped')
  const elsewhere = copyOf(cut)
  for (const one of (elsewhere.RouteAgent ?? []) as Loose[]) one.status['overlayPort'] = 51_900
  const ofChosen = [chain('input', 'accept'), rule('input', dport(51_900), { drop: null })]
  t.same(said('host', [host(ofChosen, worker)], elsewhere), [`${cause} (NodesCutOff ×1)`], 'a chosen port')
  t.same(
    said('host', [host(input, worker)], elsewhere),
    ['down NodesCutOff Cluster milano'],
    'not the default one then',
  )
  t.same(said('host', [host([chain('forward', 'drop')], worker)]), [cause], 'policy of what is handed on')
  t.same(
    said('host', [host(input, { node: 'gw1', devices })], cut),
    ['down FirewallDrops Node gw1 (NodesCutOff ×1)'],
    'on the side of the gateway node',
  )
})

t.test('kernels and what runs out', async (t) => {
  const rows: [object, string[]][] = [
    [{ sysctls: { 'net/ipv4/ip_forward': '0' } }, ['down ForwardingOff Node gw0']],
    [{ sysctls: { 'net/ipv4/conf/cni0/forwarding': '0' } }, ['down ForwardingOff Node gw0']],
    [{ sysctls: { 'net/ipv4/conf/cali12/forwarding': '0' } }, ['down ForwardingOff Node gw0']],
    [{ sysctls: { 'net/ipv4/conf/veth12/forwarding': '0' } }, []],
    [
      {
        sysctls: { 'net/ipv4/conf/eth0/forwarding': '0' },
        devices: [{ name: 'eth0', addresses: ['192.0.2.1'] }],
      },
      ['notice ForwardingOff Node gw0'],
    ],
    [{ deviceSettings: [differs('forwarding', '1', '0')] }, ['down ForwardingOff Node gw0']],
    [{ deviceSettings: [differs('accept_local', '0', '1')] }, ['degraded DeviceSettingsDiffer Node gw0']],
    [{ sysctls: { 'net/ipv4/conf/sealane0/rp_filter': '1' } }, ['degraded StrictReversePath Node gw0']],
    [{ sysctls: { 'net/ipv4/conf/all/rp_filter': '1', 'net/ipv4/conf/sealane0/rp_filter': '2' } }, []],
    [{ firewall: { tables: ['ip filter'], chains: [] } }, ['degraded KernelTableMissing Node gw0']],
    [{ connections: { used: 100, limit: 100 } }, ['down ConnectionTableFull Node gw0']],
    ...[
      ['6.18.3-arch1-1', true, true],
      ['6.18.23', true, true],
      ['6.18.24', true, false],
      ['6.19.0-rc5', true, true],
      ['6.19.13-200.fc44.x86_64', true, true],
      ['6.19.14', true, false],
      ['6.18.3', false, false],
      ['6.12.40', true, false],
      ['6.1.0-25-amd64', true, false],
      ['7.0.1', true, false],
      ['', true, false],
      ['constructor', true, false],
    ].map(([release, avx2, isFaulty]): [object, string[]] => [
      { kernel: { release, avx2 } },
      isFaulty === true ? ['notice KernelSetFault Node gw0'] : [],
    ]),
    [{ disks: [{ path: '/state', used: 98, limit: 100 }] }, ['degraded DiskFull Node gw0']],
    [{ disks: [{ path: '/state', used: 90, limit: 100 }], connections: { used: 9, limit: 100 } }, []],
  ]
  for (const [rest, lines] of rows) t.same(said('host', [host([], rest)]), lines, JSON.stringify(rest))
})

t.test('routes', async (t) => {
  const routed = brokenMember((at) => {
    for (const { metadata, spec } of at('Cluster')) if (metadata.name === 'paris') spec['podCIDRs'] = ['10.52.0.0/16']
  })
  t.same(said('host', [host([], { routes: {} })], routed), ['down KernelRoutesMissing Node gw0'])
  const down = brokenMember((at) => {
    for (const { metadata, spec } of at('Cluster')) if (metadata.name === 'paris') spec['podCIDRs'] = ['10.52.0.0/16']
    changeLinks(at, (_, node) => node === 'gw0', DOWN)
  })
  t.match(said('host', [host([], { routes: {} })], down)[0], /^down KernelRoutesMissing Node gw0 \(.*GatewayCutOff/)
  const allDown = brokenMember((at) => changeLinks(at, () => true, DOWN))
  t.match(said('host', [host([], { routes: {} })], allDown)[0], /^down KernelRoutesMissing Node gw0 \(/)
  t.notMatch(said('host', [host([], { routes: { 7311: ['246.0.0.2/32'] } })], allDown)[0], /KernelRoutesMissing/)
  t.same(said('host', [host([], { routes: { 7311: ['10.52.0.0/16'] } })], routed), [])
})

t.test('routes of a node that has just started', async (t) => {
  const routed = brokenMember((at) => {
    for (const { metadata, spec } of at('Cluster')) if (metadata.name === 'paris') spec['podCIDRs'] = ['10.52.0.0/16']
    for (const { status } of at('Gateway')) status.conditions = []
  })
  const probe = hostFact(host([], { routes: {} }))
  const found = (agoMs: number): string[] => {
    const startedAt = new Date(Date.parse(NOW) - agoMs).toISOString()
    const reports = healthyReports().map((fact) =>
      fact.t === 'report' ? { ...fact, report: { ...fact.report, startedAt } } : fact,
    )
    return linesOf(diagnoseMember(factSet(routed, [...reports, probe])).problems)
  }
  t.same(found(12_000), ['notice Starting Cluster milano (KernelRoutesMissing ×1)'])
  t.same(found(40_000), ['down KernelRoutesMissing Node gw0'])
})

t.test('a gateway that may open no more files starts no tool either', async (t) => {
  const failing = brokenMember((at) => {
    for (const { metadata, status } of at('Gateway'))
      if (metadata.name === 'gw0')
        Object.assign(status, { failure: 'RoundFailed: spawn nft EMFILE', failureReason: 'RoundFailed' })
  })
  const [report, ...others] = healthyReports()
  if (report?.t !== 'report') throw new Error('no report')
  const files = { used: 50, limit: 53 }
  const found = (part: string, name: string, look: readonly Fact[] = []): string[] => {
    const full = { ...report, report: { ...report.report, part, name, files } }
    return linesOf(diagnoseMember(factSet(failing, [full, ...others, ...look])).problems)
  }
  t.same(found('gateway', 'gw0'), ['degraded FilesNearlyOut Part gateway gw0 (RoundFailed ×1)'])
  t.same(found('site', '127.0.0.1:9471', [hostFact(host([]))]), [
    'degraded FilesNearlyOut Part site 127.0.0.1:9471 (RoundFailed ×1)',
  ])
  t.match(found('gateway', 'gw1').join(), /degraded RoundFailed Gateway gw0/, 'of another node it is no cause')
})

t.test('servers of names, and brokers', async (t) => {
  const answer = { server: '10.42.1.1:53', role: 'ours', name: 'clusterset.local', ms: 1 } as const
  t.same(said('dns-answer', [{ ...answer, result: 'NOERROR' }]), [])
  t.same(said('dns-answer', [{ ...answer, result: 'timeout' }]), ['down DnsServerSilent DnsServer 10.42.1.1:53'])
  t.same(said('dns-answer', [{ ...answer, result: 'SERVFAIL' }]), ['down DnsServerFails DnsServer 10.42.1.1:53'])
  const call = { address: '192.0.2.1:7443', ms: 1 } as const
  t.same(said('broker-call', [{ ...call, stage: 'tls' }]), [])
  t.same(said('broker-call', [{ ...call, stage: 'nothing' }]), ['notice BrokerSilent Broker -'])
  t.same(said('broker-call', [{ ...call, stage: 'tcp' }]), ['notice BrokerNoTls Broker -'])
  const late = { ...call, stage: 'tcp', reason: 'BrokerLate' } as const
  const other = { ...call, address: '192.0.2.2:7443' }
  t.same(said('broker-call', [late]), ['notice BrokerLate Broker -'], 'a machine that is busy is no proxy in between')
  t.same(said('broker-call', [late, { ...other, stage: 'nothing' }]), ['notice BrokerLate Broker -'])
  const untrusted = { ...other, stage: 'tcp', reason: 'CertificateUntrusted' } as const
  t.same(said('broker-call', [late, untrusted]), ['notice CertificateUntrusted Broker -'])
  t.same(said('identity', [{ begins: '2026-11-26T00:00:00Z', ends: '2026-11-27T00:00:00Z' }]), [
    'degraded ClockDiffers Cluster milano',
  ])
  t.same(said('settings', [{ listen: ['10.42.1.1:53'], upstreams: ['10.42.1.1:53'] }]), [
    'down DnsLoop DnsServer 10.42.1.1:53',
  ])
})

t.test('a broker whose clock is ahead takes a certificate that is good here as ended', async (t) => {
  const away = { ...HEALTHY_BROKER, publish: 'waiting', watch: 'waiting', since: '2026-11-25T11:30:00Z' } as const
  const found = (ends: string, stage: 'tls' | 'tcp'): readonly string[] => {
    const origin = { source: 'here', at: NOW }
    const call = { address: '192.0.2.1:7443', ms: 1, stage }
    const facts = [
      { t: 'probe', kind: 'identity', items: [{ begins: '2026-11-24T00:00:00Z', ends }], ...origin },
      { t: 'probe', kind: 'broker-call', items: [call], ...origin },
    ]
    const set = factSet(healthyObjects(), healthyReports({ ...away, reason: 'CertificateExpired' }))
    return linesOf(diagnoseMember({ ...set, facts: [...set.facts, ...facts] }).problems).map(
      (line) => line.split(' ')[1] ?? '',
    )
  }
  t.equal(found('2026-11-26T00:00:00Z', 'tls')[0], 'ClockDiffers')
  t.equal(found('2026-11-25T11:00:00Z', 'tls')[0], 'CertificateExpired', 'ours has ended indeed')
  t.notOk(found('2026-11-26T00:00:00Z', 'tcp').includes('ClockDiffers'), "it may be the broker's that has ended")
})

t.test('servers of names of a cluster, asked from its pods', async (t) => {
  const broken = brokenMember((at) => {
    const [own] = at('Cluster')
    if (own !== undefined)
      own.status.conditions = [condition(CONDITION_CLUSTER_DNS, 'False', 'DoesNotAnswer', 'nothing')]
  })
  const asked = { name: 'clusterset.local', ms: 1, result: 'NOERROR' } as const
  const [service, pod] = ['10.43.0.10:53', '10.42.0.7:53']
  const ours = { ...asked, role: 'ours', server: '10.42.0.11:5353' } as const
  const cluster = (server: string, result: string) => ({ ...asked, role: 'cluster', server, result }) as const
  const rows: readonly (readonly [
    name: string,
    answers: readonly ProbeItems['dns-answer'][],
    lines: readonly string[],
  ])[] = [
    [
      'one server is silent, and the cluster says so as well',
      [cluster(pod, 'timeout'), cluster(service, 'NOERROR'), ours],
      [`down DnsServerSilent DnsServer ${pod} (DoesNotAnswer ×1)`],
    ],
    [
      'no server has the zone: one problem',
      [cluster(pod, 'NXDOMAIN'), cluster(service, 'NXDOMAIN'), ours],
      ['down DoesNotAnswer Cluster milano (DoesNotAnswer ×2)'],
    ],
    [
      'one denies the zone, and another is silent: two causes',
      [cluster(pod, 'NXDOMAIN'), cluster(service, 'timeout'), ours],
      ['down DoesNotAnswer Cluster milano (DoesNotAnswer ×1)', `down DnsServerSilent DnsServer ${service}`],
    ],
    [
      'ours, to which they hand on, is silent',
      [cluster(pod, 'SERVFAIL'), cluster(service, 'timeout'), { ...ours, result: 'timeout' }],
      [`down DnsServerSilent DnsServer ${ours.server} (DoesNotAnswer ×2, DnsServerSilent ×1)`],
    ],
    [
      'ours, to which they hand on, does not know yet',
      [cluster(pod, 'SERVFAIL'), { ...ours, result: 'SERVFAIL' }],
      [`down DnsServerFails DnsServer ${ours.server} (DoesNotAnswer ×2)`],
    ],
  ]
  for (const [name, answers, lines] of rows) t.same(said('dns-answer', answers, broken), lines, name)
  t.same(
    said('dns-answer', [cluster(pod, 'REFUSED'), cluster(service, 'NOERROR'), ours]),
    [`down DoesNotAnswer DnsServer ${pod}`],
    'one of them has other settings, and nobody noticed',
  )
  t.same(said('dns-answer', [cluster(pod, 'NOERROR'), cluster(service, 'NOERROR'), ours]), [])
})

t.test('a broker that is not reached from pods', async (t) => {
  const away = { ...HEALTHY_BROKER, publish: 'waiting', watch: 'waiting', since: '2026-11-25T11:30:00Z' } as const
  const set = factSet(healthyObjects(), healthyReports(away))
  const items = [{ address: 'hub.example:7443', stage: 'nothing', message: 'no answer', ms: 1 }]
  const call = { t: 'probe', kind: 'broker-call', source: 'pod sealane-agent-0', at: NOW, items }
  const [first] = diagnoseMember({ ...set, facts: [...set.facts, call] }).problems
  t.match(first, { reason: 'BrokerSilent', severity: 'degraded', source: 'pod sealane-agent-0' })
  t.match(first?.consequences, [{ reason: 'BrokerUnreached' }])
})

t.test('a process of a plain site that hangs, or is not there', async (t) => {
  const silent = brokenMember((at) => {
    for (const { metadata, status } of at('Gateway')) {
      if (metadata.name === 'gw0') status['heartbeatTime'] = '2026-11-25T11:00:00Z'
    }
  })
  const set = factSet(silent)
  const asked = { server: '10.42.1.1:53', role: 'ours', name: 'clusterset.local', ms: 1, result: 'timeout' } as const
  for (const reason of ['NotAnswered', 'NothingRuns'] as const) {
    const origin = { source: 'here', at: NOW }
    const facts = [
      ...set.facts,
      { t: 'unanswered', what: 'Page 127.0.0.1:9471', reason, message: 'no', needed: false, ...origin },
      { t: 'probe', kind: 'dns-answer', items: [asked], ...origin },
    ]
    const [first] = linesOf(diagnoseMember({ ...set, facts }).problems)
    t.equal(first, `down ${reason} Page 127.0.0.1:9471 (DnsServerSilent ×1)`, 'the gateway may be another machine')
    const loop = { t: 'probe', kind: 'settings', items: [{ listen: ['a:53'], upstreams: ['a:53'] }], ...origin }
    const [cause] = linesOf(diagnoseMember({ ...set, facts: [...facts, loop] }).problems)
    t.equal(/^down DnsLoop .*NothingRuns ×1/.test(cause ?? ''), reason === 'NothingRuns', 'it does not begin with that')
    const here = { t: 'probe', kind: 'host', items: [host([])], ...origin }
    const all = linesOf(diagnoseMember({ ...set, facts: [...facts, here] }).problems)
    t.equal(all[0], `down ${reason} Page 127.0.0.1:9471 (DnsServerSilent ×1, GatewaySilent ×1)`)
  }
})

t.test('definitions and other products', async (t) => {
  const row = (name: string, found: number) => ({
    ...{ name: `${name}.sealane.io`, found: `revision ${found}`, expected: 'revision 8', isOlder: found < 8 },
  })
  const three = ['gateways', 'clusters', 'endpoints']
  t.same(
    said(
      'definition',
      three.map((name) => row(name, 8)),
    ),
    [],
    'as new as the command',
  )
  t.same(
    said(
      'definition',
      three.map((name) => row(name, 9)),
    ),
    [],
    'newer',
  )
  t.same(
    said(
      'definition',
      three.map((name) => row(name, 7)),
    ),
    ['degraded DefinitionOutdated Cluster milano'],
    'all at once',
  )
  t.same(said('other-product', []), [])
  const products = ['Submariner', 'Karmada'].map((name) => ({ name, crd: `x.${name}` }))
  t.same(said('other-product', products), [
    'degraded OtherProduct Product Karmada',
    'degraded OtherProduct Product Submariner',
  ])
})
