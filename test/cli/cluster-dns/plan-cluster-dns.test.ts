import fc from 'fast-check'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { refOf, titleOf } from '../../../kubeapi/kube/kinds.ts'
import {
  type ClusterDnsFlavour,
  type ClusterDnsPlan,
  type DnsObject,
  findObject,
} from '../../../cli/cluster-dns/dns-change.ts'
import { parseCorefile } from '../../../model/cluster-dns/parse-corefile.ts'
import { addForwardBlock, formatForwardBlock } from '../../../model/cluster-dns/forward-block.ts'
import { planClusterDns, planClusterDnsRemoval } from '../../../cli/cluster-dns/plan-cluster-dns.ts'
import { AKS, K3S, KUBEADM, NODE_LOCAL, RKE2, SUBMARINER, arbitraryCorefile } from '../../support/corefiles.ts'
import { chartConfig, configMap, coreDnsWorkload, openshiftDns } from './objects.ts'

const OPTIONS = { domain: 'clusterset.local', forwardTo: '10.43.0.99' }
const BLOCK = formatForwardBlock(OPTIONS, { ports: ['53'], binds: [] })

/** Returns the text of a plan: `object, field, effect`, then notes, then problems with their first advice. */
function said(plan: ClusterDnsPlan): string[] {
  return [
    ...plan.changes.map(({ object, edit, effect, before, after }) => {
      const how = effect.how === 'restart' ? `restart ${titleOf(effect.workload)}` : effect.how
      const what = before === undefined ? 'create ' : after === undefined ? 'delete ' : ''
      return `${what}${titleOf(object)} ${edit.field}: ${how}`
    }),
    ...plan.notes.map((note) => `note: ${note}`),
    ...plan.problems.map(({ kind, message }) => `${kind}: ${message}`),
  ]
}

function apply(present: readonly DnsObject[], plan: ClusterDnsPlan): readonly DnsObject[] {
  return plan.changes.reduce<readonly DnsObject[]>((objects, { object, after }) => {
    const left = objects.filter((each) => each !== findObject(objects, object))
    return after === undefined ? left : [...left, after]
  }, present)
}

const sorted = (objects: readonly DnsObject[]): string[] =>
  objects.map((object) => `${titleOf(refOf(object))} ${JSON.stringify(object)}`).sort()

/**
 * Makes the change, repeats it, and removes it, and checks the state after each step. Returns the first plan and the
 * objects after it.
 */
function thereAndBack(
  t: Test,
  flavour: ClusterDnsFlavour,
  present: readonly DnsObject[],
): [ClusterDnsPlan, readonly DnsObject[]] {
  const plan = planClusterDns(flavour, present, OPTIONS)
  const after = apply(present, plan)
  t.same(planClusterDns(flavour, after, OPTIONS).changes, [], 'again: nothing to do')
  const moved = apply(after, planClusterDns(flavour, after, { ...OPTIONS, forwardTo: '10.43.0.100:5353' }))
  const back = apply(moved, planClusterDnsRemoval(flavour, moved))
  t.same(sorted(back), sorted(present), 'taken out: as before')
  t.same(planClusterDnsRemoval(flavour, back).changes, [], 'taken out again: nothing to do')
  return [plan, after]
}

t.test('CoreDNS with a Corefile of its own', async (t) => {
  await t.test('kubeadm', async (t) => {
    const [plan, after] = thereAndBack(t, 'coredns', [configMap('coredns', { Corefile: KUBEADM })])
    t.same(said(plan), ['ConfigMap kube-system/coredns data.Corefile: by itself'])
    t.equal(after[0]?.data?.['Corefile'], `${KUBEADM}${BLOCK}\n`)
    t.equal(after[0]?.metadata.resourceVersion, '41', 'what was read is what is written')
    t.match(plan.changes[0]?.why, 'names below clusterset.local are forwarded to 10.43.0.99')
  })

  await t.test('without the plugin reload it must be restarted', async (t) => {
    const present = [configMap('coredns', { Corefile: KUBEADM.replace('    reload\n', '') })]
    const [plan] = thereAndBack(t, 'coredns', present)
    t.same(said(plan), ['ConfigMap kube-system/coredns data.Corefile: restart Deployment kube-system/coredns'])
  })

  await t.test('the Deployment says which ConfigMap and which key', async (t) => {
    const decoy = configMap('coredns', { Corefile: '. {\n}\n' })
    const map = configMap('dns-coredns', { 'dns.conf': KUBEADM.replace('reload', ''), zone: 'x' })
    const workload = coreDnsWorkload('dns-coredns', 'dns-coredns', {
      items: [{ key: 'dns.conf', path: 'Corefile' }],
    })
    const [plan] = thereAndBack(t, 'coredns', [decoy, map, workload])
    t.same(said(plan), ['ConfigMap kube-system/dns-coredns data.dns.conf: restart Deployment kube-system/dns-coredns'])
  })

  await t.test('a path that is not the value of -conf is no Corefile', async (t) => {
    const present = (args: readonly string[]): readonly DnsObject[] => [
      configMap('coredns', { Corefile: KUBEADM }),
      configMap('certs', { 'ca.crt': 'x', Corefile: '. {\n}\n' }),
      coreDnsWorkload('dns', 'certs', { args }),
    ]
    for (const [args, map] of [
      [['/etc/coredns/Corefile'], 'coredns'],
      [['-dns.port=53', '-conf'], 'coredns'],
      [['-conf', '/etc/coredns/Corefile'], 'certs'],
      [['--conf=/etc/coredns/Corefile'], 'certs'],
    ] as const) {
      const plan = planClusterDns('coredns', present(args), OPTIONS)
      t.match(said(plan)[0], `ConfigMap kube-system/${map} data.Corefile: `, args.join(' '))
    }
  })

  await t.test('a key of another name, where it is the only one with server blocks', async (t) => {
    const [plan] = thereAndBack(t, 'coredns', [configMap('coredns', { 'core.conf': KUBEADM, note: 'see wiki' })])
    t.same(said(plan), ['ConfigMap kube-system/coredns data.core.conf: by itself'])
    const two = planClusterDns('coredns', [configMap('coredns', { a: KUBEADM, b: KUBEADM })], OPTIONS)
    t.same(said(two), [
      'unreadable: ConfigMap kube-system/coredns has no key Corefile, and not exactly one other key with server blocks',
    ])
  })

  await t.test('with NodeLocal DNSCache both forward the zone, or neither', async (t) => {
    const present = [
      configMap('coredns', { Corefile: KUBEADM }),
      configMap('nodelocaldns', { Corefile: NODE_LOCAL }),
      coreDnsWorkload('nodelocaldns', 'nodelocaldns'),
    ]
    const [plan, after] = thereAndBack(t, 'coredns', present)
    t.same(said(plan), [
      'ConfigMap kube-system/coredns data.Corefile: by itself',
      'ConfigMap kube-system/nodelocaldns data.Corefile: by itself',
    ])
    t.match(after.at(-1)?.data?.['Corefile'], /clusterset.local:53 \{\n {4}bind 169.254.20.10 10.43.0.10\n/)
    const taken = [present[0]!, configMap('nodelocaldns', { Corefile: SUBMARINER }), present[2]!]
    t.same(planClusterDns('coredns', taken, OPTIONS).changes, [])
  })

  await t.test('other products, unreadable files, nothing there', async (t) => {
    const plan = planClusterDns('coredns', [configMap('coredns', { Corefile: SUBMARINER })], OPTIONS)
    t.same(said(plan), [
      'conflict: ConfigMap kube-system/coredns, Corefile: something else already answers clusterset.local (line 2, server block clusterset.local:53)',
    ])
    t.match(plan.problems[0]?.advice[0], 'Submariner')
    const multicluster = KUBEADM.replace('cluster.local in-addr.arpa', 'cluster.local clusterset.local in-addr.arpa')
    t.same(said(planClusterDns('coredns', [configMap('coredns', { Corefile: multicluster })], OPTIONS)), [
      'conflict: ConfigMap kube-system/coredns, Corefile: something else already answers clusterset.local (line 7, plugin kubernetes)',
    ])
    t.same(said(planClusterDns('coredns', [configMap('coredns', { Corefile: '.:53 {\n  errors\n' })], OPTIONS)), [
      'unreadable: ConfigMap kube-system/coredns, Corefile, line 1: the brace that opens here is not closed',
    ])
    t.same(said(planClusterDns('coredns', [], OPTIONS)), [
      'absent: there is no ConfigMap kube-system/coredns, and no other one is known to hold the Corefile',
    ])
    t.same(said(planClusterDnsRemoval('coredns', [])), [])
    t.same(said(planClusterDnsRemoval('coredns', [configMap('coredns', { Corefile: SUBMARINER })])), [])
  })

  await t.test('who else writes the ConfigMap is said', async (t) => {
    const [plan] = thereAndBack(t, 'coredns', [
      configMap('coredns', { Corefile: KUBEADM }, { 'app.kubernetes.io/managed-by': 'Helm' }),
    ])
    t.match(plan.notes, [/^ConfigMap kube-system\/coredns is also written by a Helm release and may be reset/])
  })
})

t.test('ConfigMaps of additions', async (t) => {
  await t.test('k3s: the ConfigMap is made, and goes again', async (t) => {
    const [plan, after] = thereAndBack(t, 'k3s', [configMap('coredns', { Corefile: K3S })])
    t.same(said(plan), ['create ConfigMap kube-system/coredns-custom data.sealane.server: by itself'])
    t.same(after.at(-1)?.data, { 'sealane.server': `${BLOCK}\n` })
  })

  await t.test('AKS: one key more, one key less', async (t) => {
    for (const custom of [
      configMap('coredns-custom', {
        'corp.server': 'corp.example:53 {\n  forward . 10.1.1.1\n}\n',
        'log.override': 'log',
      }),
    ]) {
      const [plan] = thereAndBack(t, 'aks', [configMap('coredns', { Corefile: AKS }), custom])
      t.same(said(plan), ['ConfigMap kube-system/coredns-custom data.sealane.server: by itself'])
    }
  })

  await t.test('a ConfigMap that is there without data stays there', async (t) => {
    const { data: _none, ...empty } = configMap('coredns-custom', {})
    const [plan] = thereAndBack(t, 'aks', [configMap('coredns', { Corefile: AKS }), empty])
    t.same(said(plan), ['ConfigMap kube-system/coredns-custom data.sealane.server: by itself'])
  })

  await t.test('any CoreDNS that imports *.server, at its own port', async (t) => {
    const corefile = K3S.replace('.:53', '.:8053').replace('        reload\n', '')
    const [plan, after] = thereAndBack(t, 'coredns', [configMap('coredns', { Corefile: corefile })])
    t.same(said(plan), [
      'create ConfigMap kube-system/coredns-custom data.sealane.server: restart Deployment kube-system/coredns',
    ])
    t.match(after.at(-1)?.data?.['sealane.server'], 'clusterset.local:8053 {')
  })

  await t.test('conflicts', async (t) => {
    const main = configMap('coredns', { Corefile: AKS })
    const plan = (data: Record<string, string>): string[] =>
      said(planClusterDns('aks', [main, configMap('coredns-custom', data)], OPTIONS))
    t.same(plan({ 'submariner.server': SUBMARINER.slice(0, SUBMARINER.indexOf('.:53')) }), [
      'conflict: ConfigMap kube-system/coredns-custom, submariner.server: something else already answers clusterset.local (line 2, server block clusterset.local:53)',
    ])
    t.same(plan({ 'x.override': 'forward clusterset.local 10.0.0.1' }), [
      'conflict: ConfigMap kube-system/coredns-custom, x.override: something else already answers clusterset.local (line 2, plugin forward)',
    ])
    t.same(plan({ 'broken.server': '{' }), ['ConfigMap kube-system/coredns-custom data.sealane.server: by itself'])
    t.same(said(planClusterDns('k3s', [configMap('coredns', { Corefile: KUBEADM })], OPTIONS)), [
      'absent: ConfigMap kube-system/coredns: its Corefile imports no *.server, so there is no place for additions',
    ])
  })
})

t.test('RKE2', async (t) => {
  const rendered = configMap('rke2-coredns-rke2-coredns', { Corefile: RKE2 })
  const values = (before: string | undefined): string => {
    const present = before === undefined ? [rendered] : [rendered, chartConfig(before)]
    const [plan, after] = thereAndBack(t, 'rke2', present)
    t.match(said(plan)[0], /HelmChartConfig kube-system\/rke2-coredns spec.valuesContent: by itself$/)
    return (after.at(-1)?.spec?.['valuesContent'] as string | undefined) ?? ''
  }
  const entry = (indent: string): string => {
    const lines = [
      '{',
      '        errors',
      '        cache 5',
      '        loadbalance',
      '        forward . 10.43.0.99 {',
      '            max_fails 1',
      '        }',
      '    }',
    ]
    return [
      '# sealane begin',
      `${indent}clusterset.local:53:`,
      `${indent}  parameters: |-`,
      ...lines.map((line) => `${indent}    ${line}`),
      '# sealane end',
    ].join('\n')
  }
  const whole = entry('  ').replace('begin\n', 'begin\nextraConfig:\n')

  t.equal(values(undefined), `${whole}\n`)
  t.equal(values('# ours\nnodelocal: {enabled: true}\n'), `# ours\nnodelocal: {enabled: true}\n${whole}\n`)
  t.equal(values('replicas: 3'), `replicas: 3\n${whole}`)
  t.equal(
    values('extraConfig:   # more\n    import:\n        parameters: /opt/*.conf\nreplicas: 3\n'),
    `extraConfig:   # more\n${entry('    ')}\n    import:\n        parameters: /opt/*.conf\nreplicas: 3\n`,
  )
  for (const odd of ['{"replicas": 3}', 'extraConfig: {a: {parameters: b}}', 'a: [', '- a', 'extraConfig:\n']) {
    const plan = planClusterDns('rke2', [rendered, chartConfig(odd)], OPTIONS)
    t.match(said(plan), [/^unreadable: HelmChartConfig kube-system\/rke2-coredns, spec.valuesContent: expected/], odd)
  }

  await t.test('what the chart prints from it is a server block', async (t) => {
    const plan = planClusterDns('rke2', [rendered], OPTIONS)
    const { extraConfig } = parse(plan.changes[0]?.edit.after ?? '') as {
      extraConfig: Record<string, { parameters: string }>
    }
    // The chart prints the name and the parameters of each entry in indented text, and then its own server block.
    const entries = Object.entries(extraConfig).map(([name, { parameters }]) => `    ${name} ${parameters}\n`)
    const template = `data:\n  Corefile: |-\n${entries.join('')}    .:53 {\n        errors\n    }\n`
    const { data } = parse(template) as { data: { Corefile: string } }
    const servers = parseCorefile(data.Corefile).items.filter((item) => item.kind === 'server')
    t.same(
      servers.map(({ keys, directives }) => [keys.join(' '), ...directives.map(({ name }) => name)]),
      [
        ['clusterset.local:53', 'errors', 'cache', 'loadbalance', 'forward'],
        ['.:53', 'errors'],
      ],
    )
  })

  await t.test('somebody else, and NodeLocal DNSCache', async (t) => {
    const taken = configMap('rke2-coredns-rke2-coredns', { Corefile: SUBMARINER })
    t.match(said(planClusterDns('rke2', [taken], OPTIONS)), [/^conflict: /])
    const nodeLocal = configMap('node-local-dns', { Corefile: NODE_LOCAL })
    const expected = [{ kind: 'cache', advice: [/nodelocal.extraClusterDomains: \[clusterset.local\]/] }]
    t.match(planClusterDns('rke2', [rendered, nodeLocal], OPTIONS).problems, expected)
    const values = 'nodelocal: {enabled: true}\n'
    const first = planClusterDns('rke2', [rendered, nodeLocal, chartConfig(values)], OPTIONS)
    const again = planClusterDns('rke2', apply([rendered, nodeLocal, chartConfig(values)], first), OPTIONS)
    t.same(again.changes, [])
    t.match(again.problems, expected, 'said until it has been done')
    const done = chartConfig('nodelocal: {enabled: true, extraClusterDomains: [clusterset.local]}\n')
    t.same(planClusterDns('rke2', [rendered, nodeLocal, done], OPTIONS).problems, [])
  })
})

t.test('OpenShift', async (t) => {
  const corp = { name: 'corp', zones: ['corp.example'], forwardPlugin: { policy: 'Random', upstreams: ['10.0.0.1'] } }
  for (const spec of [{}, { servers: [corp], cache: { positiveTTL: '1h' } }]) {
    const [plan, after] = thereAndBack(t, 'openshift', [openshiftDns(spec)])
    t.same(said(plan), ['DNS default spec.servers: by itself'])
    t.match((after[0]?.spec?.['servers'] as object[]).at(-1), {
      name: 'sealane',
      zones: ['clusterset.local'],
      forwardPlugin: { upstreams: ['10.43.0.99'] },
    })
  }
  const plan = (spec: Readonly<Record<string, unknown>>): string[] =>
    said(planClusterDns('openshift', [openshiftDns(spec)], OPTIONS))
  t.same(plan({ servers: [{ ...corp, name: 'lighthouse', zones: ['a.example', 'clusterset.local.'] }] }), [
    'conflict: DNS default: something else already answers clusterset.local (spec.servers, server "lighthouse")',
  ])
  t.match(plan({ managementState: 'Unmanaged' }), [/^outOfReach: the DNS operator is switched off/])
  t.match(said(planClusterDns('openshift', [], OPTIONS)), [/^absent: /])
})

t.test('kube-dns', async (t) => {
  const rows: [Record<string, string> | undefined, string][] = [
    [undefined, '{"clusterset.local":["10.43.0.99"]}'],
    [{ upstreamNameservers: '["8.8.8.8"]' }, '{"clusterset.local":["10.43.0.99"]}'],
    [{ stubDomains: '{}' }, '{"clusterset.local":["10.43.0.99"]}'],
    [
      { stubDomains: ' {\n  "corp.example": ["10.0.0.1"]\n }\n' },
      ' {\n  "corp.example": ["10.0.0.1"],"clusterset.local":["10.43.0.99"]\n }\n',
    ],
  ]
  for (const [data, want] of rows.filter(([data]) => data?.['stubDomains'] !== '{}')) {
    const [plan, after] = thereAndBack(t, 'kube-dns', data === undefined ? [] : [configMap('kube-dns', data)])
    t.match(said(plan)[0], /ConfigMap kube-system\/kube-dns data.stubDomains: by itself$/)
    t.equal(after[0]?.data?.['stubDomains'], want)
  }
  const plan = (stubDomains: string): string[] =>
    said(planClusterDns('kube-dns', [configMap('kube-dns', { stubDomains })], OPTIONS))
  t.same(plan('{"ClusterSet.local": ["10.0.0.1"]}'), [
    'conflict: ConfigMap kube-system/kube-dns, stubDomains: ClusterSet.local is already forwarded to ["10.0.0.1"]',
  ])
  t.match(plan('corp.example'), [/^unreadable: ConfigMap kube-system\/kube-dns, stubDomains: expected a JSON object/])

  await t.test('JSON that somebody has written anew keeps the rest', async (t) => {
    const present = [configMap('kube-dns', { stubDomains: '{"a": ["10.0.0.1"]}' })]
    const [after] = apply(present, planClusterDns('kube-dns', present, OPTIONS))
    const again = { ...after!, data: { stubDomains: '{ "clusterset.local": [ "10.43.0.99" ], "a": [ "10.0.0.1" ] }' } }
    const [back] = apply([again], planClusterDnsRemoval('kube-dns', [again]))
    t.equal(back?.data?.['stubDomains'], '{"a":["10.0.0.1"]}')
  })
})

t.test('what is out of reach says what to do instead', async (t) => {
  const rows: [ClusterDnsFlavour, RegExp, RegExp][] = [
    ['eks-auto-mode', /EKS Auto Mode runs DNS on its nodes/, /Route 53 Resolver rule that forwards clusterset.local/],
    ['gke-cloud-dns', /resolves names with Cloud DNS/, /Cloud DNS forwarding zone for clusterset.local/],
    ['unknown', /Sealane does not know the DNS server/, /Make it forward clusterset.local to 10.43.0.99/],
  ]
  for (const [flavour, message, advice] of rows) {
    const plan = planClusterDns(flavour, [], OPTIONS)
    t.same(plan.changes, [])
    t.match(plan.problems, [{ kind: 'outOfReach', message, advice: [advice, /dnsPolicy: None/] }])
    t.same(said(planClusterDnsRemoval(flavour, [])), [])
  }
})

t.test('the address to forward to', async (t) => {
  const map = configMap('coredns', { Corefile: KUBEADM })
  for (const forwardTo of ['10.43.0.99', '10.43.0.99:5353', 'fd00::99', '[fd00::99]:53']) {
    t.same(planClusterDns('coredns', [map], { ...OPTIONS, forwardTo }).problems, [], forwardTo)
  }
  for (const forwardTo of [
    '',
    'None',
    'sealane-dns.svc',
    '10.43.0.99:0',
    '10.43.0.99 {',
    '[fd00::99',
    '1.2.3.4:53:53',
  ]) {
    t.throws(
      () => planClusterDns('coredns', [map], { ...OPTIONS, forwardTo }),
      { name: 'InvalidAddressError' },
      forwardTo,
    )
  }
})

t.test('any Corefile: a plan never throws, and going back gives back what was there', async (t) => {
  const text = fc.oneof(
    arbitraryCorefile,
    fc.string({ unit: 'binary' }),
    arbitraryCorefile.map((text) => addForwardBlock(text, OPTIONS)),
  )
  fc.assert(
    fc.property(text, fc.constantFrom<ClusterDnsFlavour>('coredns', 'k3s'), (Corefile, flavour) => {
      const present = [configMap('coredns', { Corefile })]
      const plan = planClusterDns(flavour, present, OPTIONS)
      const clean = apply(present, planClusterDnsRemoval(flavour, present))
      const after = apply(clean, planClusterDns(flavour, clean, OPTIONS))
      const back = apply(after, planClusterDnsRemoval(flavour, after))
      return plan.changes.length + plan.problems.length <= 1 && sorted(back).join() === sorted(clean).join()
    }),
    { numRuns: 500 },
  )
  t.end()
})
