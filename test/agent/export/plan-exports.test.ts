import t from 'tap'
import { planConditions } from '../../../agent/publish/plan-conditions.ts'
import { type ExportWorld, newExportMemory, planExports } from '../../../agent/export/plan-exports.ts'
import { parsePrefix } from '../../../model/values/ip.ts'
import { checkMemberRecord } from '../../../protocol/codec/records-codec.ts'
import type { ConditionReason } from '../../../model/reasons/reasons.ts'
import type { Condition, Service, ServiceExport } from '../../../model/objects.ts'
import type { EndpointSliceBody, ServiceExportBody } from '../../../model/records.ts'
import { endpointObject } from '../../support/objects/cluster-objects.ts'
import { ALLOWS_ALL, service, serviceExport, slice } from '../site.ts'

const WORLD: ExportWorld = {
  cluster: 'milano',
  podPrefixes: [parsePrefix('10.42.0.0/16')],
  access: ALLOWS_ALL,
  exports: [serviceExport('shop', 'web')],
  services: [service('shop', 'web')],
  slices: [slice('shop', 'web', '10.42.0.5')],
  endpoints: [],
}

/** A derived Service of an import of the same name. */
const DERIVED = {
  labels: {
    'sealane.io/derived': 'true',
    'sealane.io/derived-from': 'web',
    'app.kubernetes.io/managed-by': 'sealane',
  },
  ownerReferences: [
    { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceImport', name: 'web', uid: 'uid-web' },
  ],
}

type Selector = NonNullable<
  NonNullable<NonNullable<ServiceExport['spec']>['clusterSelectors']>[number]['propertySelector']
>

function selecting(propertySelector: Selector): ServiceExport {
  return { ...serviceExport('shop', 'web'), spec: { clusterSelectors: [{ propertySelector }] } }
}

/** With the conditions Valid=True and this Ready. */
function exportedBefore(
  namespace: string,
  ready: readonly [status: 'True' | 'False', reason: ConditionReason],
  valid: readonly [status: 'True' | 'False' | 'Unknown', reason: ConditionReason] = ['True', 'Valid'],
  imported?: readonly [status: 'True' | 'False' | 'Unknown', reason: ConditionReason],
): ServiceExport {
  const condition = (type: string, [status, reason]: typeof valid) => ({
    ...{ type, status, reason, message: '', lastTransitionTime: '2026-11-28T09:00:00Z' },
  })
  const conditions = [
    ...[condition('Valid', valid), condition('Ready', ready)],
    ...(imported === undefined ? [] : [condition('sealane.io/Imported', imported)]),
  ]
  return { ...serviceExport(namespace, 'web'), status: { conditions } }
}

t.test('which exports are valid', async (t) => {
  const rows: [name: string, change: Partial<ExportWorld>, want: string][] = [
    ['a ClusterIP service', {}, 'True Valid Service shop/web can be exported'],
    ['no Service', { services: [] }, 'False NoService Service shop/web does not exist'],
    ['another Service', { services: [service('shop', 'other')] }, 'False NoService Service shop/web does not exist'],
    ['another namespace', { services: [service('other', 'web')] }, 'False NoService Service shop/web does not exist'],
    [
      'ExternalName',
      { services: [service('shop', 'web', { type: 'ExternalName' })] },
      'False InvalidServiceType Service shop/web is of type ExternalName, which cannot be exported',
    ],
    [
      'derived from an import',
      {
        services: [
          {
            ...service('shop', 'web'),
            metadata: {
              ...{ name: 'web', namespace: 'shop' },
              ...DERIVED,
            },
          },
        ],
      },
      'False DerivedServiceNotExported Service shop/web is derived from an import, whose clusters export it themselves',
    ],
    [
      'derived, and taken over by a user',
      {
        services: [
          {
            ...service('shop', 'web', { selector: { app: 'web' } }),
            metadata: { ...{ name: 'web', namespace: 'shop' }, ...DERIVED },
          },
        ],
      },
      'True Valid Service shop/web can be exported',
    ],
    [
      'NodePort',
      { services: [service('shop', 'web', { type: 'NodePort' })] },
      'True Valid Service shop/web can be exported',
    ],
    [
      'headless',
      { services: [service('shop', 'web', { clusterIP: 'None' })] },
      'True Valid Service shop/web can be exported',
    ],
    [
      'a name that no Service can have',
      { exports: [serviceExport('shop', 'x'.repeat(64))], services: [service('shop', 'x'.repeat(64))] },
      `False NoService Service shop/${'x'.repeat(64)} cannot have a DNS name: "${'x'.repeat(64)}": expected 1 to 63 of a-z, 0-9 and -`,
    ],
    [
      'LoadBalancer',
      { services: [service('shop', 'web', { type: 'LoadBalancer', clusterIP: '10.43.0.9' })] },
      'True Valid Service shop/web can be exported',
    ],
    [
      'a Service that is being deleted',
      {
        services: [
          { ...service('shop', 'web'), metadata: { name: 'web', namespace: 'shop', deletionTimestamp: 'now' } },
        ],
      },
      'False NoService Service shop/web does not exist',
    ],
    [
      'selectors of clusters',
      { exports: [selecting({ matchProperties: { 'region.sealane.io': '@SameAsImporter@' } })] },
      'True Valid Service shop/web can be exported',
    ],
    [
      'a selector that names nothing',
      { exports: [selecting({})] },
      'False InvalidClusterSelector spec.clusterSelectors[0].propertySelector: "": expected at least one entry in matchProperties or matchExpressions',
    ],
    [
      'selectors of a headless service',
      {
        exports: [selecting({ matchProperties: { a: 'b' } })],
        services: [service('shop', 'web', { clusterIP: 'None' })],
      },
      'False InvalidServiceType spec.clusterSelectors: the service is headless: expected none, or a service with a cluster IP',
    ],
    [
      'a guarded namespace',
      { exports: [serviceExport('kube-system', 'web')], services: [service('kube-system', 'web')] },
      'False NamespaceNotAllowed Service kube-system/web is not exported: namespace kube-system is a system namespace; allowedNamespaces of the site file, or --allow-namespace of sealane join, may name it',
    ],
    [
      'a guarded namespace whose export was accepted by a release that did not look at the list',
      { exports: [exportedBefore('default', ['True', 'Exported'])], services: [service('default', 'web')] },
      'True Valid,ExportedBefore Service default/web can be exported, because it was before: namespace default is the default for objects that name no namespace; allowedNamespaces of the site file, or --allow-namespace of sealane join, may name it',
    ],
    [
      'a guarded namespace, refused by the broker before',
      { exports: [exportedBefore('default', ['False', 'NamespaceNotAllowed'])], services: [service('default', 'web')] },
      'False NamespaceNotAllowed Service default/web is not exported: namespace default is the default for objects that name no namespace; allowedNamespaces of the site file, or --allow-namespace of sealane join, may name it',
    ],
    [
      'an excluded namespace whose export was accepted',
      {
        ...{ exports: [exportedBefore('bank', ['True', 'Exported'])], services: [service('bank', 'web')] },
        access: { ...WORLD.access, namespaces: { excluded: ['bank'] } },
      },
      'False NamespaceNotAllowed Service bank/web is not exported: namespace bank is among the excludedNamespaces of this cluster; allowedNamespaces of the site file, or --allow-namespace of sealane join, may name it',
    ],
    [
      'one that this cluster allows, about which the broker decides then',
      {
        ...{ exports: [serviceExport('kube-system', 'web')], services: [service('kube-system', 'web')] },
        access: { ...WORLD.access, namespaces: { allowed: ['kube-system'], excluded: ['kube-system'] } },
      },
      'True Valid,NamespaceAllowed Service kube-system/web can be exported',
    ],
    [
      'an excluded one',
      {
        ...{ exports: [serviceExport('bank', 'web')], services: [service('bank', 'web')] },
        access: { ...WORLD.access, namespaces: { excluded: ['bank'] } },
      },
      'False NamespaceNotAllowed Service bank/web is not exported: namespace bank is among the excludedNamespaces of this cluster; allowedNamespaces of the site file, or --allow-namespace of sealane join, may name it',
    ],
    [
      'a name of two labels',
      { exports: [serviceExport('shop', 'web.v2')], services: [service('shop', 'web.v2')] },
      'False NoService Service shop/web.v2 cannot have a DNS name: "web.v2": expected 1 to 63 of a-z, 0-9 and -',
    ],
  ]
  for (const [name, change, want] of rows) {
    const [planned] = [...planExports({ ...WORLD, ...change }).exports.values()]
    t.equal(`${planned?.valid.status} ${planned?.valid.reason} ${planned?.valid.message}`, want, name)
    t.equal((planned?.records.length ?? 0) > 0, want.startsWith('True'), `${name}: published or not`)
  }
})

t.test('an export of a guarded namespace: who has permitted it, and until when', async (t) => {
  const memory = newExportMemory()
  type Conditions = Parameters<typeof exportedBefore>
  const validWith = (ready: Conditions[1], valid?: Conditions[2], change: Partial<ExportWorld> = {}): string => {
    const exports = [exportedBefore('default', ready, valid)]
    const world = { ...WORLD, exports, services: [service('default', 'web')], ...change }
    const found = [...planExports(world, memory).exports.values()][0]?.valid
    return `${found?.status} ${found?.reason}`
  }
  const accepted: Conditions[1] = ['True', 'Exported']
  const pending: Conditions[1] = ['False', 'Pending']
  const [stays, refused] = ['True Valid,ExportedBefore', 'False NamespaceNotAllowed']
  t.equal(validWith(accepted), stays, 'an earlier release')
  for (const reason of ['QuotaRecords', 'Failed'] as const) t.equal(validWith(['False', reason]), stays, reason)
  t.equal(validWith(pending), refused, 'an earlier release has left')
  t.equal(validWith(['False', 'NamespaceNotAllowed']), refused, 'the memory of the plan has no part in it')
  const before = ['True', 'Valid,ExportedBefore'] as const
  t.equal(validWith(accepted, before), stays)
  t.equal(validWith(pending, before), stays, 'not confirmed by the broker yet')
  t.equal(validWith(['False', 'NamespaceNotAllowed'], before), refused)

  const [gone, closed] = ['NoService,ExportedBefore', 'ExposesNothing,ExportedBefore'] as const
  t.equal(validWith(accepted, before, { services: [] }), `False ${gone}`)
  const nothing = { access: { ...WORLD.access, exposure: 'nothing' } } as const
  t.equal(validWith(accepted, before, nothing), `False ${closed}`)
  for (const reason of [gone, closed]) t.equal(validWith(pending, ['False', reason]), stays, `after ${reason}`)
  t.equal(validWith(pending, ['False', 'NoService']), refused, 'a new one without Service')

  const allowed = { access: { ...WORLD.access, namespaces: { allowed: ['default'] } } }
  for (const valid of [undefined, before]) t.equal(validWith(accepted, valid, allowed), 'True Valid,NamespaceAllowed')
  t.equal(validWith(accepted, ['True', 'Valid,NamespaceAllowed']), refused, 'taken out of the own list')
  t.equal(validWith(accepted, before, { ...allowed, services: [] }), 'False NoService', 'the list alone permits it')
  t.equal(validWith(pending, ['Unknown', 'Pending']), refused, 'after a leave')

  const valid: Conditions[2] = ['True', 'Valid']
  const whose = (imported: Conditions[3]) => {
    const exports = [exportedBefore('default', pending, valid, imported)]
    const world = { ...WORLD, exports, services: [service('default', 'web')] }
    const found = [...planExports(world).exports.values()][0]?.valid
    return `${found?.status} ${found?.reason}`
  }
  t.equal(whose(['True', 'Imported']), stays, 'an earlier release waits for the broker to store a change')
  t.equal(whose(['Unknown', 'Pending']), refused, 'an earlier release has left an import')

  const asks = (isStored: boolean | undefined, imported?: Conditions[3]): string => {
    const exports = [exportedBefore('default', pending, valid, imported)]
    const asked: string[] = []
    const world = { ...WORLD, exports, services: [service('default', 'web')] }
    const plan = planExports({ ...world, isStored: (key) => (asked.push(key), isStored) })
    const found = [...plan.exports.values()][0]?.valid
    const undecided = [...plan.undecided].join()
    return `${asked.join()}: ${found === undefined ? `undecided ${undecided}` : `${found.status} ${found.reason}`}`
  }
  const waits = 'default/web: undecided default/web'
  t.equal(asks(true), `default/web: ${stays}`, 'changed before others could report, and the broker has it')
  t.equal(asks(true, ['Unknown', 'Pending']), `default/web: ${stays}`, 'a quota refused a change of it')
  t.equal(asks(false), `default/web: ${refused}`, 'never stored, or left')
  t.equal(asks(undefined), waits, 'the broker has not answered')
  t.equal(asks(undefined, ['True', 'Imported']), `: ${stays}`, 'conditions that say it are enough')
})

t.test('a service that is too large says so, with both numbers', async (t) => {
  const ports = (count: number, name = 'p'): NonNullable<NonNullable<Service['spec']>['ports']> =>
    Array.from({ length: count }, (_, i) => ({ name: `${name}${i}`, port: i + 1 }))
  const labelled = (spec: NonNullable<ServiceExport['spec']>): Partial<ExportWorld> => ({
    exports: [{ ...serviceExport('shop', 'web'), spec }],
  })
  const addresses = Array.from({ length: 100 }, (_, i) => `10.42.1.${i + 1}`)
  const busy = { ...slice('shop', 'web', ''), endpoints: Array.from({ length: 21 }, () => ({ addresses })) }
  const pairs = (count: number): Record<string, string> =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, 'v']))
  const rows: [change: Partial<ExportWorld>, want: string | RegExp][] = [
    [{ services: [service('shop', 'web', { ports: ports(20_000) })] }, ''],
    [
      { services: [service('shop', 'web', { ports: ports(20_001) })] },
      'it has 20001 ports, and an export carries at most 20000',
    ],
    [
      { services: [service('shop', 'web', { ports: ports(12_000, 'x'.repeat(50)) })] },
      /^its export takes \d+ bytes with 12000 ports, and a record has at most 524288$/,
    ],
    [labelled({ exportedLabels: pairs(100), exportedAnnotations: pairs(100) }), ''],
    [labelled({ exportedLabels: pairs(101) }), 'it has 101 exported labels, and an export carries at most 100'],
    [
      labelled({ exportedAnnotations: pairs(101) }),
      'it has 101 exported annotations, and an export carries at most 100',
    ],
    [labelled({ exportedAnnotations: { a: 'x'.repeat(262_143) } }), ''],
    [
      labelled({ exportedAnnotations: { a: 'é'.repeat(131_072) } }),
      'it has 262145 bytes of exported annotations, and an export carries at most 262144',
    ],
    [{ slices: [busy] }, 'it has 2100 addresses in EndpointSlice web-1, and an export carries at most 2000'],
  ]
  for (const [change, want] of rows) {
    const plan = planExports({ ...WORLD, ...change })
    const [planned] = [...plan.exports.values()]
    const { status, reason, message = '' } = planned?.valid ?? {}
    const title = 'Service shop/web is too large to be exported: '
    if (want === '') {
      t.equal(`${status} ${reason}`, 'True Valid')
      for (const record of plan.records.values()) checkMemberRecord(record)
      continue
    }
    t.equal(`${status} ${reason}`, 'False ServiceTooLarge')
    t.match(message.replace(title, ''), want)
    t.equal(plan.records.size, 0, 'nothing is published')
    const conditions = planConditions(planned!, { answered: true, state: () => ({ t: 'pending' }) })
    t.strictSame(
      conditions.slice(0, 2).map((one) => `${one.type} ${one.status} ${one.reason}`),
      ['Valid False ServiceTooLarge', 'Ready False Pending'],
    )
  }
})

t.test('the record of an export', async (t) => {
  const full: Service['spec'] = {
    type: 'LoadBalancer',
    clusterIP: '10.43.0.9',
    ports: [
      { name: 'http', port: 80, targetPort: 8080, appProtocol: 'http' },
      { name: 'dns', port: 53, protocol: 'UDP' },
    ],
    sessionAffinity: 'ClientIP',
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 10 } },
    internalTrafficPolicy: 'Cluster',
    trafficDistribution: 'PreferClose',
    ipFamilies: ['IPv4'],
  }
  const exported: ServiceExport = {
    ...serviceExport('shop', 'web'),
    metadata: { name: 'web', namespace: 'shop', uid: 'u1', labels: { not: 'this' } },
    spec: { exportedLabels: { tier: 'front' }, exportedAnnotations: { note: 'x' } },
  }
  const plan = planExports({ ...WORLD, services: [service('shop', 'web', full)], exports: [exported] })
  t.strictSame(plan.records.get('ServiceExport/shop/web'), {
    namespace: 'shop',
    name: 'web',
    body: {
      kind: 'ServiceExport',
      uid: 'u1',
      type: 'ClusterSetIP',
      ports: [
        { name: 'http', protocol: 'TCP', port: 80, appProtocol: 'http' },
        { name: 'dns', protocol: 'UDP', port: 53 },
      ],
      sessionAffinity: 'ClientIP',
      sessionAffinityTimeoutSeconds: 10,
      internalTrafficPolicy: 'Cluster',
      trafficDistribution: 'PreferClose',
      ipFamilies: ['IPv4'],
      exportedLabels: { tier: 'front' },
      exportedAnnotations: { note: 'x' },
      endsOpen: true,
    },
  })
})

t.test('selectors and drain travel with the record', async (t) => {
  const published = (exported: ServiceExport): unknown[] => {
    const [planned] = [...planExports({ ...WORLD, exports: [exported] }).exports.values()]
    const { clusterSelectors, drained, drainedNow } = planned!.exported!.body
    return [
      clusterSelectors,
      drainedNow === true ? [drained, 'now'] : drained,
      planned!.notes.map(({ message }) => message).join(),
    ]
  }
  const annotated = (value: string): ServiceExport => {
    const metadata = { name: 'web', namespace: 'shop', annotations: { 'sealane.io/drain': value } }
    return { ...serviceExport('shop', 'web'), metadata }
  }
  const propertySelector = { matchProperties: { 'zone.sealane.io': 'a' } }
  t.same(published(serviceExport('shop', 'web')), [undefined, undefined, ''])
  t.same(published(selecting(propertySelector)), [[{ propertySelector }], undefined, ''])
  t.same(published({ ...serviceExport('shop', 'web'), spec: { clusterSelectors: [] } }), [undefined, undefined, ''])
  t.same(published(annotated('true')), [undefined, true, ''])
  t.same(published(annotated('now')), [undefined, [true, 'now'], ''], 'importers of earlier releases read drained')
  t.same(published(annotated('false')), [undefined, undefined, ''])
  const note = 'annotation sealane.io/drain: "yes": expected "true", "now" or "false"; it is not drained'
  t.same(published(annotated('yes')), [undefined, undefined, note])
})

t.test('type and families where the Service says little', async (t) => {
  const rows: [spec: Service['spec'], slices: ExportWorld['slices'], want: string][] = [
    [{}, [], 'ClusterSetIP IPv4'],
    [{ clusterIP: 'None' }, [], 'Headless IPv4'],
    [{ clusterIP: '' }, [], 'ClusterSetIP IPv4'],
    [{ clusterIP: 'fd00::1' }, [], 'ClusterSetIP IPv6'],
    [{ clusterIPs: ['10.0.0.1', 'fd00::1'] }, [], 'ClusterSetIP IPv4,IPv6'],
    [{ clusterIP: 'None' }, [slice('shop', 'web', '', { addressType: 'IPv6' })], 'Headless IPv6'],
    [{ ipFamilies: ['IPv6', 'IPv4'] }, [], 'ClusterSetIP IPv6,IPv4'],
  ]
  for (const [spec, slices, want] of rows) {
    const plan = planExports({ ...WORLD, services: [service('shop', 'web', spec)], slices })
    const body = plan.records.get('ServiceExport/shop/web')?.body as ServiceExportBody
    t.equal(`${body.type} ${body.ipFamilies.join()}`, want)
  }
})

t.test('endpoints: what is published and what is left out', async (t) => {
  const odd = slice('shop', 'web', '', {
    endpoints: [
      {
        addresses: ['10.42.9.9'],
        hostname: 'b',
        nodeName: 'n1',
        zone: 'z',
        hints: { forZones: [{ name: 'z' }, { name: 'a' }] },
        conditions: { ready: false, serving: true, terminating: true },
      },
      { addresses: ['10.42.0.1'], zone: 'no zone' },
      { addresses: ['127.0.0.1'] },
      { addresses: ['192.168.1.1'] },
      { addresses: ['fd00::1'] },
      { addresses: ['pod'] },
      { addresses: ['10.42.0.2'], hostname: 'Bad_Name' },
      { addresses: [] },
    ],
    ports: [
      { name: '', port: 8080 },
      { name: 'u', port: 53, protocol: 'UDP', appProtocol: 'x' },
    ],
  })
  const fqdn = slice('shop', 'web', 'x', { addressType: 'FQDN', metadata: { ...odd.metadata, name: 'web-2' } })
  const imported = slice('shop', 'web', '10.42.0.99', {
    metadata: {
      name: 'web-3',
      namespace: 'shop',
      labels: { 'kubernetes.io/service-name': 'web', 'multicluster.kubernetes.io/source-cluster': 'x' },
    },
  })
  const stray = slice('shop', 'web', '10.42.0.98', { metadata: { name: 'web-4', namespace: 'shop' } })
  const plan = planExports({ ...WORLD, slices: [odd, fqdn, imported, stray] })
  t.same([...plan.records.keys()], ['ServiceExport/shop/web', 'EndpointSlice/shop/web-1'])
  t.strictSame(plan.records.get('EndpointSlice/shop/web-1')?.body, {
    kind: 'EndpointSlice',
    service: 'web',
    addressType: 'IPv4',
    ports: [
      { protocol: 'TCP', port: 8080 },
      { name: 'u', protocol: 'UDP', port: 53, appProtocol: 'x' },
    ],
    endpoints: [
      { addresses: ['10.42.0.1'], conditions: {} },
      { addresses: ['10.42.0.2'], conditions: {} },
      {
        addresses: ['10.42.9.9'],
        hostname: 'b',
        nodeName: 'n1',
        zone: 'z',
        hints: { forZones: [{ name: 'a' }, { name: 'z' }] },
        conditions: { ready: false, serving: true, terminating: true },
      },
    ],
  } satisfies EndpointSliceBody)
  const reason = 'AddressOutsidePods'
  t.strictSame(plan.exports.get('shop/web')?.notes, [
    { message: 'endpoint 10.42.0.1: zone "no zone" is left out: not a label value' },
    { message: 'endpoint 127.0.0.1 is left out: a loopback address (AddressOutsidePods)', reason },
    { message: 'endpoint 192.168.1.1 is left out: outside the pod CIDRs (AddressOutsidePods)', reason },
    { message: 'endpoint fd00::1 is left out: not an IPv4 address (InvalidValue)' },
    { message: 'endpoint pod is left out: not an IP address (InvalidValue)' },
    { message: 'hostname "Bad_Name" is left out: not a DNS label' },
    { message: 'EndpointSlice web-2 has address type FQDN and is left out' },
  ])
})

t.test('a hostname whose whole DNS name would not fit is left out', async (t) => {
  const long = 'x'.repeat(63)
  const world: ExportWorld = {
    ...WORLD,
    cluster: long,
    exports: [serviceExport(long, long)],
    services: [service(long, long)],
    slices: [slice(long, long, `${'h'.repeat(40)}@10.42.0.5 ${'h'.repeat(41)}@10.42.0.6`)],
  }
  const plan = planExports(world)
  const body = plan.records.get(`EndpointSlice/${long}/${long}-1`)?.body as EndpointSliceBody
  t.same(
    body.endpoints.map(({ hostname }) => hostname?.length),
    [40, undefined],
  )
  const message = `hostname "${'h'.repeat(41)}" is left out: its DNS name is 1 characters too long`
  t.strictSame(plan.exports.get(`${long}/${long}`)?.notes, [{ message, reason: 'HostnameTooLong' }])
})

t.test('IPv6 endpoints are left out as a whole where pods have only IPv4 addresses', async (t) => {
  const six = slice('shop', 'web', 'fd00::5 fd00::6', {
    addressType: 'IPv6',
    metadata: { name: 'web-6', namespace: 'shop', labels: { 'kubernetes.io/service-name': 'web' } },
  })
  const plan = planExports({ ...WORLD, slices: [...WORLD.slices, six] })
  t.same([...plan.records.keys()], ['ServiceExport/shop/web', 'EndpointSlice/shop/web-1'])
  t.same(plan.exports.get('shop/web')?.notes, [
    { message: 'IPv6 endpoints are left out: this cluster has no pod CIDR of this IP family' },
  ])
})

t.test('gateways: only our own, exports that are being deleted not at all', async (t) => {
  const dying: ServiceExport = {
    ...serviceExport('shop', 'web'),
    metadata: { name: 'web', namespace: 'shop', deletionTimestamp: 'now' },
  }
  const plan = planExports({
    ...WORLD,
    exports: [dying],
    endpoints: ['paris', 'milano'].map((cluster) => endpointObject({ cluster })),
  })
  t.same([...plan.records.keys()], ['Endpoint//milano.gw-lane0'])
})

t.test('with a memory, what has not changed is the very same object', async (t) => {
  const memo = newExportMemory()
  const first = planExports(WORLD, memo)
  const [exported] = WORLD.exports
  // A status write of the agent makes a new object with the same metadata and spec.
  const second = planExports({ ...WORLD, exports: [{ ...exported!, status: { conditions: [] } }] }, memo)
  for (const [key, record] of first.records) t.equal(second.records.get(key), record, key)
  const third = planExports({ ...WORLD, slices: [slice('shop', 'web', '10.42.0.6')] }, memo)
  t.not(third.records.get('EndpointSlice/shop/web-1'), first.records.get('EndpointSlice/shop/web-1'))
  t.same(
    planExports({ ...WORLD, slices: [slice('shop', 'web', '10.42.0.6')] }).records,
    third.records,
    'the memory changes nothing',
  )
})

t.test('conditions that nobody knows are left alone', async (t) => {
  const [planned] = [...planExports(WORLD).exports.values()]
  const ready = { type: 'Ready', status: 'True', reason: 'Exported', message: '', lastTransitionTime: '' } as const
  const before = { ...planned!, object: { ...planned!.object, status: { conditions: [ready] } } }
  const show = (list: readonly { type: string; reason: string }[]): string =>
    list.map((c) => `${c.type}:${c.reason}`).join(' ')
  const pending = () => ({ t: 'pending' as const })
  t.equal(
    show(planConditions(before, { answered: false, state: pending }, undefined)),
    'Valid:Valid Conflict:NoConflicts',
  )
  t.equal(
    show(planConditions(planned!, { answered: false, state: pending }, undefined)),
    'Valid:Valid Ready:Pending Conflict:NoConflicts',
  )
  t.equal(
    show(planConditions(before, { answered: true, state: pending }, undefined)),
    'Valid:Valid Ready:Pending Conflict:NoConflicts',
  )
  const third = {
    ...planned!,
    object: { ...planned!.object, metadata: { ...planned!.object.metadata, generation: 3 } },
  }
  const metadata = { ...planned!.object.metadata, namespace: 'default' }
  const [own = '', part = ''] = planned!.recordKeys
  const refused = (reason: 'QuotaRecords' | 'InvalidValue') =>
    ({ t: 'refused', field: '', reason, message: '' }) as const
  type State = ReturnType<Parameters<typeof planConditions>[1]['state']>
  /** Of a guarded namespace: what is said of Imported before the members have reported. */
  const imported = (
    states: readonly [own: State, part: State],
    before: readonly Condition[],
    answered: boolean,
  ): string => {
    const object = { ...planned!.object, metadata, status: { conditions: before } }
    const state = (key: string): State => (key === own ? states[0] : states[1])
    const found = planConditions({ ...planned!, object }, { answered, state }, undefined)
    return show(found.filter(({ type }) => type === 'sealane.io/Imported'))
  }
  t.not(part, '')
  const known = { ...ready, type: 'sealane.io/Imported', reason: 'Imported' } as const
  const reported = 'sealane.io/Imported:NotTold'
  type Row = readonly [say: string, ...Parameters<typeof imported>, want: string]
  const rows: readonly Row[] = [
    ['all is stored', [{ t: 'stored' }, { t: 'stored' }], [], true, ''],
    ['a part is over quota', [{ t: 'stored' }, refused('QuotaRecords')], [], true, reported],
    ['all is over quota', [refused('QuotaRecords'), refused('QuotaRecords')], [], true, ''],
    [
      'a change is over quota: the broker keeps what was',
      [refused('QuotaRecords'), { t: 'stored' }],
      [known],
      true,
      '',
    ],
    ['a change is refused', [refused('InvalidValue'), { t: 'stored' }], [known], true, 'sealane.io/Imported:Pending'],
    ['it was stored and has changed', [{ t: 'pending' }, { t: 'stored' }], [ready], true, reported],
    ['the same, and members have reported', [{ t: 'pending' }, { t: 'stored' }], [ready, known], true, ''],
    ['a new one', [{ t: 'pending' }, { t: 'pending' }], [], true, ''],
    ['a restart without the broker', [{ t: 'pending' }, { t: 'pending' }], [ready], false, ''],
  ]
  for (const [say, states, before, answered, want] of rows) t.equal(imported(states, before, answered), want, say)
  t.same(
    planConditions(third, { answered: true, state: pending }, undefined).map((one) => one.observedGeneration),
    [3, 3, 3],
    'every condition says which generation it speaks of',
  )
  const finding = { reasons: ['PortConflict', 'TypeConflict'] as const, message: 'm' }
  const stored = () => ({ t: 'stored' as const })
  t.equal(
    show(planConditions(before, { answered: true, state: stored }, { finding })),
    'Valid:Valid Ready:Exported Conflict:PortConflict,TypeConflict',
  )
})
