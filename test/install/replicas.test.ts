/** Brokers as replicas with their etcd, as `manifests/broker-replicas` has them. */
import t from 'tap'
import type { ManifestObject } from '../../install/values/manifest.ts'
import { planBroker } from '../../install/plan-broker.ts'
import { REPLICAS_VALUES } from '../../scripts/manifest-files.ts'

interface PodSpec {
  readonly automountServiceAccountToken: boolean
  readonly terminationGracePeriodSeconds: number
  readonly securityContext: Readonly<Record<string, unknown>>
  readonly containers: readonly [{ readonly args: readonly string[] }]
}

/** The value as an API server receives it: without fields that are undefined. */
function plain<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T
}

t.test('replicas: nothing of one broker, spread, and an etcd that loses no majority by a drain', (t) => {
  const planned = plain(planBroker(REPLICAS_VALUES).flatMap((part) => part.objects))
  const kinds = planned.map(({ kind, metadata }) => `${kind} ${metadata.name}`)
  t.notOk(kinds.includes('StatefulSet sealane-broker') || kinds.includes('PersistentVolumeClaim sealane-broker-data'))
  const of = (kind: string, name: string): ManifestObject | undefined =>
    planned.find((object) => object.kind === kind && object.metadata.name === name)
  const spec = (kind: string, name: string): Readonly<Record<string, unknown>> =>
    of(kind, name)?.['spec'] as Readonly<Record<string, unknown>>
  const brokers = spec('Deployment', 'sealane-broker')
  t.match(brokers, { replicas: 3, strategy: { rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } } })
  const template = brokers['template'] as { readonly spec: PodSpec & { readonly topologySpreadConstraints: unknown } }
  const drain = Number(/^(\d+)s$/.exec(argument(template.spec, '--drain'))?.[1])
  t.ok(template.spec.terminationGracePeriodSeconds > drain + 5, 'there is time for the drain')
  t.match(template.spec.topologySpreadConstraints, [{ topologyKey: 'kubernetes.io/hostname' }])
  const etcd = spec('StatefulSet', 'sealane-etcd')
  t.match(etcd, { replicas: 3, podManagementPolicy: 'Parallel', serviceName: 'sealane-etcd' })
  const pod = (etcd['template'] as { readonly spec: PodSpec }).spec
  t.match(pod, { automountServiceAccountToken: false, securityContext: { runAsNonRoot: true } })
  const [{ args }] = pod.containers
  const members = args.find((one) => one.startsWith('--initial-cluster='))?.split(',') ?? []
  const hosts = members.map((one) => /https:\/\/(.*):2380$/.exec(one)?.[1])
  const endpoints = /^etcd:\/\/(.*)\/sealane$/.exec(argument(template.spec, '--store'))?.[1]?.split(',')
  t.same(
    endpoints,
    hosts.map((host) => `${host}:2379`),
    'brokers call the members that there are',
  )
  for (const flag of ['--client-cert-auth=true', '--peer-client-cert-auth=true', '--peer-cert-allowed-cn=sealane-etcd'])
    t.ok(args.includes(flag), flag)
  t.notOk(
    args.some((one) => one.includes('http://') && !one.startsWith('--listen-metrics-urls=')),
    'TLS everywhere',
  )
  t.match(spec('Service', 'sealane-etcd'), { clusterIP: 'None', publishNotReadyAddresses: true })
  for (const name of ['sealane-broker', 'sealane-etcd'])
    t.match(spec('PodDisruptionBudget', name), { maxUnavailable: 1 }, name)
  t.end()
})

function argument({ containers: [{ args }] }: PodSpec, flag: string): string {
  return args[args.indexOf(flag) + 1] ?? ''
}
