/**
 * NetworkPolicies that block callers of other clusters, callers of this cluster or parts of Sealane, and policies that
 * do not.
 */
import t from 'tap'
import { diagnoseMember } from '../../../explain/diagnose-member.ts'
import type { NetworkPolicy } from '../../../explain/facts/shapes.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import {
  HEALTHY_BROKER,
  type HealthyInit,
  type ObjectsByKind,
  SELF,
  condition,
  factSet,
  healthyObjects,
  healthyReports,
} from '../../support/objects/member-facts.ts'
import { exportObject, importObject, serviceObject } from '../../support/objects/service-objects.ts'
import { type Loose, brokenMember, linesOf } from '../broken-member.ts'

type Spec = NonNullable<NetworkPolicy['spec']>

const PARIS = '10.102.0.0/16'
const TOKYO = '10.103.0.0/16'
const WEB = { matchLabels: { app: 'web' } }

const policy = (name: string, spec: Spec, namespace = 'shop'): unknown => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: { name, namespace },
  spec: { podSelector: {}, ...spec },
})
const blocks = (...cidrs: string[]) => cidrs.map((cidr) => ({ ipBlock: { cidr } }))
const letIn = (name: string, from: object[], more: Spec = {}, ports?: object[]): unknown =>
  policy(name, { policyTypes: ['Ingress'], ingress: [{ from, ports } as never], ...more })
const DENY = policy('deny', { policyTypes: ['Ingress'] })
const INSIDE = letIn('inside', [{ podSelector: {} }, { namespaceSelector: {} }])

const service = (name: string, change: object = {}): unknown =>
  serviceObject({ name }, {
    type: 'ClusterIP',
    selector: { app: 'web', part: name },
    ipFamilies: ['IPv4'],
    ports: [{ name: 'http', protocol: 'TCP', port: 80, targetPort: 8080 }],
    ...change,
  } as object)

/**
 * A healthy member with these policies in addition to its own, and with the Services that are listed only if there are
 * policies.
 */
function member(policies: readonly unknown[], change: Partial<ObjectsByKind> = {}, init: HealthyInit = {}) {
  const { NetworkPolicy: own = [], ...objects } = healthyObjects(init)
  const names = Array.from({ length: init.services ?? 1 }, (_, i) => `web${i}`)
  return { ...objects, Service: names.map((name) => service(name)), NetworkPolicy: [...own, ...policies], ...change }
}

/** The objects without a kind that could not be listed. */
function without(kind: 'Service' | 'Pod', objects: ObjectsByKind): ObjectsByKind {
  return Object.fromEntries(Object.entries(objects).filter(([one]) => one !== kind))
}

const PAIR = [
  { name: 'http', protocol: 'TCP', port: 80, targetPort: 8080 },
  { name: 'metrics', protocol: 'TCP', port: 9090 },
]
const own = clusterObject({ id: SELF, podCIDRs: ['10.42.0.0/16', 'fd42::/48'] })
const paris6 = clusterObject({ id: 'paris', index: 2, podCIDRs: [PARIS, 'fd52::/48'] })
const ownClusterDns = { status: { conditions: [condition('ClusterDNS', 'True', 'Answers')] } }
const CLUSTERS6 = [{ ...own, ...ownClusterDns }, paris6]
const TRANSLATED = [
  { ...clusterObject({ id: SELF, podCIDRs: ['10.42.0.0/16'] }), ...ownClusterDns },
  clusterObject({ id: 'paris', index: 2, podCIDRs: ['10.42.0.0/16'], globalCIDRs: ['244.1.0.0/16'] }),
]
const SIX = { ipFamilies: ['IPv6'] }
const BOTH = { ipFamilies: ['IPv4', 'IPv6'] }

const SHUT = 'degraded PolicyKeepsOut ServiceExport shop/web0'
const PARTLY = 'notice PolicyKeepsOut ServiceExport shop/web0'

/** From a name to the objects, the expected lines, and the expected wording. */
const EXPORTS: Readonly<Record<string, readonly [objects: ObjectsByKind, lines?: readonly string[], seen?: RegExp]>> = {
  'no policy': [member([])],
  'a policy of another namespace': [member([policy('deny', { policyTypes: ['Ingress'] }, 'other')])],
  'nothing is let in': [
    member([DENY]),
    [SHUT],
    /^NetworkPolicy shop\/deny selects its pods, but no policy allows ingress from another cluster$/,
  ],
  'policyTypes are not said': [member([policy('deny', {})]), [SHUT]],
  'without a spec': [member([{ metadata: { name: 'x', namespace: 'shop' } }]), [SHUT]],
  'it is about what goes out': [member([policy('out', { policyTypes: ['Egress'], egress: [{}] })])],
  'pods of this cluster are let in': [
    member([DENY, INSIDE]),
    [SHUT],
    /^NetworkPolicies shop\/deny, shop\/inside select its/,
  ],
  'everybody is let in': [member([DENY, letIn('all', [])])],
  'everybody, by one block': [member([letIn('all', blocks('0.0.0.0/0'))])],
  'all but the clusters': [
    member([letIn('but', [{ ipBlock: { cidr: '0.0.0.0/0', except: ['10.0.0.0/8'] } }])]),
    [SHUT],
  ],
  'all but a part of each': [
    member([letIn('but', [{ ipBlock: { cidr: '0.0.0.0/0', except: ['10.102.0.0/17', '10.103.0.0/17'] } }])]),
  ],
  'both clusters are let in': [member([DENY, letIn('paris', blocks(PARIS)), letIn('tokyo', blocks(TOKYO))])],
  'one cluster is let in': [
    member([DENY, letIn('paris', blocks(PARIS))]),
    [PARTLY],
    /no policy allows ingress from 10\.103\.0\.0\/16 \(tokyo\) on TCP 8080$/,
  ],
  'one pod of each is let in': [member([letIn('two', blocks('10.102.0.7/32', '10.103.9.9/32'))])],
  'own addresses are let in': [member([letIn('own', blocks('10.42.0.0/16'))]), [SHUT]],
  'of a translated cluster, the global addresses': [
    member([letIn('global', blocks('244.0.0.0/8'))], { Cluster: TRANSLATED }, { others: ['paris'] }),
  ],
  'of a translated cluster, the addresses that nobody sees': [
    member([letIn('pods', blocks('10.42.0.0/16'))], { Cluster: TRANSLATED }, { others: ['paris'] }),
    [SHUT],
  ],
  'its port is let in': [member([letIn('web', [], { podSelector: WEB }, [{ protocol: 'TCP', port: 8080 }])])],
  "the Service's port is let in, and not that of the pods": [
    member([letIn('web', [], { podSelector: WEB }, [{ protocol: 'TCP', port: 80 }])]),
    [SHUT],
  ],
  'a name may be its port': [member([letIn('web', [], { podSelector: WEB }, [{ port: 'web' }])])],
  'another port by name, of two': [
    member([letIn('web', [], {}, [{ port: 8080 }])], { Service: [service('web0', { ports: PAIR })] }),
    [PARTLY],
    /no policy allows ingress from 10\.102\.0\.0\/16 \(paris\), 10\.103\.0\.0\/16 \(tokyo\) on TCP 9090$/,
  ],
  'a Service without ports': [
    member([letIn('web', [], {}, [{ port: 8080 }])], { Service: [service('web0', { ports: null })] }),
  ],
  'it is about other pods': [member([policy('db', { podSelector: { matchLabels: { app: 'db' } } })])],
  'it may be about other pods': [member([policy('some', { podSelector: { matchLabels: { tier: 'front' } } })])],
  'what lets in may be about its pods': [
    member([DENY, letIn('some', [], { podSelector: { matchLabels: { tier: 'front' } } })]),
  ],
  'what lets in is about other pods': [
    member([DENY, letIn('db', [], { podSelector: { matchLabels: { app: 'db' } } })]),
    [SHUT],
    /^NetworkPolicy shop\/deny selects/,
  ],
  'a Service without a selector': [member([DENY], { Service: [service('web0', { selector: null })] })],
  'the Service is not known': [member([DENY], { Service: [] })],
  'nobody may list Services': [without('Service', member([DENY]))],
  'an export that is refused': [
    member([DENY], {
      ServiceExport: [
        { ...exportObject({ name: 'web0' }), status: { conditions: [condition('Ready', 'False', 'Failed', 'no')] } },
      ],
    }),
    ['degraded Failed ServiceExport shop/web0'],
  ],
  'no other cluster': [member([DENY], {}, { others: [] })],
  'a cluster whose addresses cannot be read': [
    member(
      [letIn('paris', blocks(PARIS))],
      { Cluster: [TRANSLATED[0], clusterObject({ id: 'paris', podCIDRs: [PARIS] }), badCluster()] },
      { others: ['paris', 'tokyo'] },
    ),
  ],
  'IPv6 is let in, of an IPv6 Service': [
    member(
      [letIn('six', blocks('fd52::/32'))],
      { Cluster: CLUSTERS6, Service: [service('web0', SIX)] },
      { others: ['paris'] },
    ),
  ],
  'IPv4 is let in, of an IPv6 Service': [
    member(
      [letIn('four', blocks(PARIS))],
      { Cluster: CLUSTERS6, Service: [service('web0', SIX)] },
      { others: ['paris'] },
    ),
    [SHUT],
  ],
  'IPv4 is let in, of a Service of both': [
    member(
      [letIn('four', blocks(PARIS))],
      { Cluster: CLUSTERS6, Service: [service('web0', BOTH)] },
      { others: ['paris'] },
    ),
    [PARTLY],
    /allows ingress from fd52::\/48 \(paris\) on TCP 8080$/,
  ],
  'IPv4 is let in, where pods have IPv4 only': [
    member([letIn('four', blocks(PARIS))], { Cluster: [CLUSTERS6[0], paris6] }, { others: ['paris'] }),
  ],
  'one policy, several exports': [
    member([DENY], {}, { services: 3 }),
    ['degraded PolicyKeepsOut Namespace shop (PolicyKeepsOut ×3)'],
    /^3 exported services are completely or partly unreachable from other clusters: web0, web1, web2\. web0: NetworkPolicy /,
  ],
  'several exports, one of them open': [
    member([DENY, letIn('web1', [], { podSelector: { matchLabels: { part: 'web1' } } })], {}, { services: 3 }),
    ['degraded PolicyKeepsOut Namespace shop (PolicyKeepsOut ×2)'],
  ],
}

function badCluster(): unknown {
  return clusterObject({ id: 'tokyo', index: 3, podCIDRs: ['10.0.0.0'] })
}

const out = (name: string, egress: object[], podSelector: Spec['podSelector'] = {}): unknown =>
  policy(name, { podSelector, policyTypes: ['Egress'], egress: egress as never })
const DNS = {
  to: [],
  ports: [
    { protocol: 'UDP', port: 53 },
    { protocol: 'TCP', port: 53 },
  ],
}
const IMPORT = {
  ...importObject(
    { name: 'web0' },
    { type: 'ClusterSetIP', ports: [{ port: 80, protocol: 'TCP' }], ips: ['245.0.0.7'] },
  ),
  status: { clusters: [{ cluster: SELF }, { cluster: 'paris' }] },
}
const OWN_IMPORT = { ...IMPORT, status: { clusters: [{ cluster: SELF }] } }
const NAME_SERVER = { ...IMPORT, spec: { ...IMPORT.spec, ports: [{ port: 53, protocol: 'UDP' }] } }
const calling = (policies: readonly unknown[], one: unknown = IMPORT): ObjectsByKind =>
  member(policies, { ServiceImport: [one] })
const KEPT = 'notice PolicyKeepsIn NetworkPolicy shop/out'

const CALLS: Readonly<Record<string, readonly [objects: ObjectsByKind, lines?: readonly string[], seen?: RegExp]>> = {
  'nothing is let out': [
    calling([out('out', [])]),
    [KEPT],
    /^it selects every pod of shop, but no policy there allows egress to another cluster: pods there cannot reach web0$/,
  ],
  'names may be asked for': [calling([out('out', [DNS])]), [KEPT]],
  'names may be asked for, and one server of them is imported': [calling([out('out', [DNS])], NAME_SERVER)],
  'own pods may be called': [calling([out('out', [DNS, { to: [{ namespaceSelector: {} }] }])]), [KEPT]],
  'everything is let out': [calling([out('out', [{}])])],
  'one cluster is let out to': [calling([out('out', [DNS, { to: blocks(PARIS) }])])],
  'clusterset IPs are let out to': [calling([out('out', [DNS, { to: blocks('245.0.0.0/16') }])])],
  'some pods are kept in': [calling([out('out', [], WEB)])],
  'some pods are let out': [calling([out('out', []), out('some', [{}], WEB)])],
  'nothing of another cluster is imported there': [calling([out('out', [])], OWN_IMPORT)],
  'another namespace': [calling([policy('out', { policyTypes: ['Egress'] }, 'other')])],
}

const system = (name: string, spec: Spec): unknown => policy(name, spec, 'sealane-system')
const NO_WAY_OUT = system('closed', { policyTypes: ['Ingress', 'Egress'] })
const PART = { 'app.kubernetes.io/component': 'dns' }

/** The objects without the policies that Sealane installs. */
const bare = (...policies: unknown[]): ObjectsByKind => ({ ...healthyObjects(), NetworkPolicy: policies })

const PARTS: Readonly<Record<string, readonly [objects: ObjectsByKind, lines?: readonly string[], seen?: RegExp]>> = {
  'nothing is let out': [
    member([NO_WAY_OUT]),
    [
      'degraded PolicyStopsPart Deployment sealane-system/sealane-agent',
      'degraded PolicyStopsPart Deployment sealane-system/sealane-dns',
    ],
    /^NetworkPolicy closed allows no egress from its pods, but they need the API server, the broker and DNS$/,
  ],
  'something is let out': [
    member([NO_WAY_OUT, system('some', { policyTypes: ['Egress'], egress: [{ to: blocks('10.43.0.1/32') }] })]),
  ],
  'names are not let in': [
    bare(system('closed', { policyTypes: ['Ingress'] })),
    ['degraded PolicyStopsPart Service sealane-system/sealane-dns'],
    /allows no ingress on UDP 5353/,
  ],
  'names are let in at the port of the Service': [
    bare(system('dns', { podSelector: { matchLabels: PART }, ingress: [{ ports: [{ protocol: 'UDP', port: 53 }] }] })),
    ['degraded PolicyStopsPart Service sealane-system/sealane-dns'],
  ],
  'names are let in at the port of the pods': [
    bare(system('dns', { ingress: [{ ports: [{ protocol: 'UDP', port: 'dns-udp' }] }] })),
  ],
  'nothing is let in, beside the policies that are installed': [member([system('in', { policyTypes: ['Ingress'] })])],
  'other pods of the namespace': [
    bare(
      system('x', { podSelector: { matchExpressions: [{ key: 'app.kubernetes.io/name', operator: 'DoesNotExist' }] } }),
    ),
  ],
  'pods on the network of their node': [
    {
      ...member([NO_WAY_OUT]),
      Pod:
        brokenMember((at) => {
          for (const pod of at('Pod')) pod.spec['hostNetwork'] = true
        }).Pod ?? [],
    },
  ],
  'nobody may list pods': [without('Pod', member([NO_WAY_OUT]))],
}

for (const [about, table] of Object.entries({ exports: EXPORTS, calls: CALLS, parts: PARTS })) {
  for (const [name, [objects, lines = [], seen = /./]] of Object.entries(table)) {
    t.test(`${about}: ${name}`, async (t) => {
      const { health, problems } = diagnoseMember(factSet(objects))
      t.same(linesOf(problems), lines)
      t.equal(health, lines.some((line) => !line.startsWith('notice')) ? 'degraded' : 'healthy')
      if (lines.length > 0) t.match(problems[0]?.seen, seen)
    })
  }
}

t.test('what to do names the ranges and the ports of the pods', async (t) => {
  const { problems } = diagnoseMember(factSet(member([DENY])))
  t.equal(
    problems[0]?.mend,
    `To make it reachable, allow ingress from ${PARIS} (paris), ${TOKYO} (tokyo) on TCP 8080, each as an ipBlock of an ingress rule.`,
  )
  t.equal(problems[0]?.source, 'API server')
})

t.test('without facts about policies nothing is said', async (t) => {
  const { NetworkPolicy: _none, ...objects } = member([DENY])
  t.same(diagnoseMember(factSet(objects)).problems, [])
})

t.test('what follows from a part that is closed in stands below it', async (t) => {
  const away = { ...HEALTHY_BROKER, publish: 'waiting', watch: 'waiting', since: '2026-11-25T11:30:00Z' } as const
  const dns = brokenMember((at) => {
    const [first] = at('Cluster')
    if (first !== undefined) first.status.conditions = [condition('ClusterDNS', 'False', 'DoesNotAnswer', 'SERVFAIL')]
    at('NetworkPolicy').splice(0, 9, system('closed', { policyTypes: ['Ingress', 'Egress'] }) as Loose)
  })
  t.same(linesOf(diagnoseMember(factSet(dns, healthyReports(away))).problems), [
    'down PolicyStopsPart Deployment sealane-system/sealane-dns (DoesNotAnswer ×1)',
    'degraded PolicyStopsPart Deployment sealane-system/sealane-agent (BrokerUnreached ×1)',
    'degraded PolicyStopsPart Service sealane-system/sealane-dns',
  ])
})

t.test('many exports, many policies and a hostile one end in time', async (t) => {
  const services = 300
  const block = { ipBlock: { cidr: '10.42.0.0/16', except: Array.from({ length: 40 }, (_, i) => `10.42.${i}.0/24`) } }
  const policies = Array.from({ length: 40 }, (_, i) => letIn(`p${i}`, [block]))
  const huge = letIn(
    'huge',
    Array.from({ length: 30_000 }, (_, i) => ({ ipBlock: { cidr: `10.42.${i % 256}.0/24` } })),
  )
  const began = performance.now()
  const { problems } = diagnoseMember(factSet(member(policies, {}, { services })))
  t.same(linesOf(problems), [`degraded PolicyKeepsOut Namespace shop (PolicyKeepsOut ×${services})`])
  t.same(diagnoseMember(factSet(member([huge], {}, { services }))).problems, [], 'nobody says what is left of so many')
  t.comment(`${Math.round(performance.now() - began)} ms`)
})
