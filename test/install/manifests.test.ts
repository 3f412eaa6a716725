/**
 * The installed manifests: the generated files are committed, and each component's role allows what it needs and no
 * more.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { DRAIN_LEAD_MS } from '../../gateway/lease/lane-lease.ts'
import { DRAIN_MS } from '../../kubeapi/kube/kube-api.ts'
import { HAND_OVER_MS, LAST_MS, RELEASE_MS } from '../../gateway/lease/hand-over.ts'
import { ASK_MS, CLEAN_MS } from '../../gateway/lease/labelled-gateway.ts'
import { ALL_CRDS } from '../../install/crds/all-crds.ts'
import { type ManifestObject, placeholders } from '../../install/values/manifest.ts'
import { AUDIT_LOG, AUTHORITY_DIR, EXTERNAL_TRAFFIC_POLICY, planBroker } from '../../install/plan-broker.ts'
import { identitySecret, planMember } from '../../install/plan-member.ts'
import { STATUS_PORTS } from '../../install/values/names.ts'
import { NODE_ADDRESSES } from '../../install/workloads/pod.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../install/values/install-values.ts'
import { noteOf } from '../../scripts/chart-values.ts'
import { GENERATED_FOLDERS, METRICS_VALUES, manifestFiles } from '../../scripts/manifest-files.ts'
import { ROOT, sourceFiles } from '../support/source-tree.ts'
import { PLAIN_SITE_SOURCES } from './plain-site-sources.ts'

const MEMBER = ['agent', 'gateway', 'routeagent', 'dns'] as const
const ON_THE_NODE: readonly string[] = ['gateway', 'routeagent']

type Quantities = Readonly<Record<string, string>>

/** In thousandths of a processor: with half of it, the loss of a gateway lasted 4 s on a busy node (decision 87). */
const LEAST_MILLI: Readonly<Record<string, number>> = { gateway: 250, routeagent: 100 }

const milliOf = (cpu = ''): number => (cpu.endsWith('m') ? Number(cpu.slice(0, -1)) : 1000 * Number(cpu))

interface Container {
  readonly args: readonly string[]
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[]
  readonly securityContext: object
  readonly resources: { readonly requests?: Quantities; readonly limits?: Quantities }
  readonly readinessProbe: { readonly httpGet: { readonly port: number; readonly host?: string } }
  readonly env?: readonly unknown[]
}

interface SecretEnv {
  readonly valueFrom?: {
    readonly secretKeyRef?: { readonly name: string; readonly key: string; readonly optional?: boolean }
  }
}

interface Monitor {
  readonly selector: { readonly matchLabels: Readonly<Record<string, string>> }
  readonly podMetricsEndpoints: readonly object[]
}

interface PodSpec {
  readonly automountServiceAccountToken: boolean
  readonly hostNetwork?: boolean
  readonly terminationGracePeriodSeconds: number
  readonly priorityClassName: string
  readonly securityContext: Readonly<Record<string, unknown>>
  readonly containers: readonly [Container]
  readonly volumes: readonly { readonly name: string; readonly hostPath?: { readonly path: string } }[]
}

interface Rule {
  readonly apiGroups: readonly [string]
  readonly resources: readonly string[]
  readonly verbs: readonly string[]
}

/** The value as an API server receives it: without fields that are undefined. */
function plain<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T
}

const objects = plain([...planMember(DEFAULT_VALUES), ...planBroker(DEFAULT_VALUES)].flatMap((part) => part.objects))

function find(kind: string, name: string): ManifestObject | undefined {
  return objects.find((object) => object.kind === kind && object.metadata.name === name)
}

function podOf(part: string): PodSpec {
  const workload = objects.find(
    ({ kind, metadata }) =>
      ['Deployment', 'DaemonSet', 'StatefulSet'].includes(kind) && metadata.name === `sealane-${part}`,
  )
  return (workload as unknown as { spec: { template: { spec: PodSpec } } }).spec.template.spec
}

t.test('manifests/ is what npm run manifests writes', async (t) => {
  const files = manifestFiles()
  for (const [path, text] of files) {
    t.equal(read(path), text, `${path}: run npm run manifests`)
  }
  for (const folder of GENERATED_FOLDERS) {
    for (const name of readdirSync(join(ROOT, 'manifests', folder), { recursive: true, encoding: 'utf8' })) {
      if (/\.(ya?ml|json|txt)$/.test(name)) t.ok(files.has(join(folder, name)), `${folder}/${name} is generated`)
    }
  }
})

function read(path: string): string {
  try {
    return readFileSync(join(ROOT, 'manifests', path), 'utf8')
  } catch {
    return 'missing'
  }
}

t.test('every value of the chart is explained, and the image is of this version', async (t) => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  t.equal(DEFAULT_VALUES.image.tag, version, 'image.tag')
  const paths = JSON.stringify(placeholders(DEFAULT_VALUES)).matchAll(/(?:\.Values\.|"path":")([A-Za-z.]+)/g)
  for (const [, path = ''] of paths) t.ok(noteOf(path), path)
})

t.test('the image needs no other image, and runs as nobody', async (t) => {
  const containerfile = readFileSync(join(ROOT, 'Containerfile'), 'utf8')
  t.match(containerfile, /^FROM scratch\nADD root\.tar \/\n/m)
  t.equal(containerfile.match(/^FROM /gm)?.length, 1)
  t.match(containerfile, /^USER 65532:65532$/m)
})

t.test('pods that need no power have none', async (t) => {
  for (const part of [...MEMBER, 'broker']) {
    const pod = podOf(part)
    const [container] = pod.containers
    const onNode = ON_THE_NODE.includes(part)
    t.same(
      container.securityContext,
      {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: onNode ? { drop: ['ALL'], add: ['NET_ADMIN'] } : { drop: ['ALL'] },
      },
      `${part}: container`,
    )
    t.equal(pod.securityContext['runAsNonRoot'] === true, !onNode, `${part}: runAsNonRoot`)
    t.same(pod.securityContext['seccompProfile'], { type: 'RuntimeDefault' }, `${part}: seccomp`)
    t.equal(pod.hostNetwork === true, onNode, `${part}: hostNetwork`)
    t.equal(pod.automountServiceAccountToken, part !== 'broker', `${part}: token`)
    t.equal(pod.volumes.filter(({ hostPath }) => hostPath !== undefined).length > 0, onNode, `${part}: hostPath`)
    t.equal(pod.priorityClassName, onNode ? 'system-node-critical' : 'system-cluster-critical', `${part}: priority`)
    const { requests, limits } = container.resources
    t.ok(requests && limits, `${part}: resources`)
    t.notOk(limits?.['cpu'], `${part}: processor time is not limited`)
    t.ok(milliOf(requests?.['cpu']) >= (LEAST_MILLI[part] ?? 1), `${part}: a share of it where others burn it all`)
  }
})

t.test('each part has the priority class of the values, and none if that is empty', async (t) => {
  for (const [say, want] of [
    ['net-critical', 'net-critical'],
    ['', undefined],
  ] as const) {
    const values = structuredClone(DEFAULT_VALUES) as unknown as Record<string, { priorityClassName: string }>
    for (const part of [...MEMBER, 'broker', 'etcd']) Object.assign(values[part] ?? {}, { priorityClassName: say })
    const own = values as unknown as InstallValues
    const forms = [own, { ...own, broker: { ...own.broker, store: 'etcd' }, etcd: { ...own.etcd, enabled: true } }]
    const all = [...planMember(own), ...forms.flatMap((form) => planBroker(form))].flatMap(({ objects }) => objects)
    const pods = all
      .filter(({ kind }) => /^(Deployment|DaemonSet|StatefulSet)$/.test(kind))
      .map((object) => {
        const { template } = object['spec'] as { readonly template: { readonly spec: Partial<PodSpec> } }
        return template.spec.priorityClassName
      })
    t.strictSame(pods, Array(MEMBER.length + 3).fill(want), `"${say}"`)
  }
})

t.test('the proxy of a Secret reaches agent and gateways, and gateways start without the Secret', async (t) => {
  const names = (values: InstallValues) =>
    planMember(values)
      .flatMap(({ objects }) => objects)
      .filter(({ kind }) => /^(Deployment|DaemonSet)$/.test(kind))
      .map((object) => {
        const { template } = object['spec'] as { readonly template: { readonly spec: PodSpec } }
        const env = (template.spec.containers[0].env ?? []) as readonly SecretEnv[]
        const refs = env.flatMap(({ valueFrom }) => valueFrom?.secretKeyRef ?? [])
        return refs.map(({ name, key, optional = false }) => `${name} ${key}${optional ? ' optional' : ''}`)
      })
  t.strictSame(names(DEFAULT_VALUES), Array(MEMBER.length).fill([]))
  const values = { ...DEFAULT_VALUES, agent: { ...DEFAULT_VALUES.agent, proxySecret: 'corporate' } }
  t.strictSame(
    new Set(names(values).map((one) => one.join())),
    new Set([
      'corporate HTTPS_PROXY,corporate NO_PROXY optional',
      '',
      'corporate HTTPS_PROXY optional,corporate NO_PROXY optional',
    ]),
  )
  t.equal(names(values).filter((one) => one.length > 0).length, 2)
})

t.test('a gateway that is stopped ends before it is killed, however slow all is', async (t) => {
  const { terminationGracePeriodSeconds } = podOf('gateway')
  const goingMs = Math.max(HAND_OVER_MS, LAST_MS + DRAIN_LEAD_MS)
  // The Lease is read twice: to find out whether the lane of a changed label is free, and at the end whether the node
  // is still a gateway.
  const slowestMs = 2 * ASK_MS + goingMs + RELEASE_MS + CLEAN_MS + DRAIN_MS
  t.ok(slowestMs + 1000 < terminationGracePeriodSeconds * 1000, `${slowestMs} ms of ${terminationGracePeriodSeconds} s`)
})

t.test('each status page has a port of its own, on loopback where the node has the address', async (t) => {
  t.equal(new Set(Object.values(STATUS_PORTS)).size, Object.keys(STATUS_PORTS).length)
  for (const part of [...MEMBER, 'broker'] as const) {
    const [container] = podOf(part).containers
    const host = ON_THE_NODE.includes(part) ? '127.0.0.1' : '[::]'
    t.equal(container.args[container.args.indexOf('--status-listen') + 1], `${host}:${STATUS_PORTS[part]}`, part)
    const { port, host: probed = '[::]' } = container.readinessProbe.httpGet
    t.same([port, probed], [STATUS_PORTS[part], host], `${part}: probe`)
  }
})

const READ = ['get', 'list', 'watch']
const WRITE = ['create', 'patch', 'delete']

/** The kinds that each component applies and removes; of ClusterProperties it writes two, by their names. */
const WRITTEN: Readonly<Record<(typeof MEMBER)[number], readonly string[]>> = {
  agent: ['EndpointSlice', 'ServiceImport', 'Cluster', 'Endpoint', 'Lease', 'Membership', 'Service'],
  gateway: ['Endpoint', 'Gateway'],
  routeagent: ['RouteAgent'],
  dns: [],
}

t.test('each component reads the kinds that its sources have caches of, writes its own, and no others', async (t) => {
  for (const part of MEMBER) {
    const used = new Set<string>()
    const sources = sourceFiles(new RegExp(`^(${part}/.*|cli/compose-${part})\\.ts$`), [part, 'cli'])
    for (const { text } of sources.filter(({ path }) => !PLAIN_SITE_SOURCES.has(path))) {
      for (const [, kind = ''] of text.matchAll(/\bcache\('(\w+)'\)/g)) used.add(kind)
      // This matches a loop over kinds: `for (const kind of ['Cluster', 'Lease'] as const) … cache(kind)`.
      for (const [, kinds = ''] of text.matchAll(/for \(const kind of \[([^\]]*)\]/g)) {
        for (const [, kind = ''] of kinds.matchAll(/'(\w+)'/g)) used.add(kind)
      }
    }
    // Every component reads which clusterset this cluster belongs to, and compares what it writes with the stored
    // objects.
    const read = [...new Set([...used, 'Membership', ...WRITTEN[part]])]
    t.same(allowed(part, READ).sort(), resourcesOf(read), `${part} reads`)
    t.same(allowed(part, WRITE).sort(), resourcesOf(WRITTEN[part]), `${part} writes`)
  }
})

/** The resources as RBAC names them. */
const RESOURCES: Readonly<Record<string, string>> = {
  Namespace: '/namespaces',
  Node: '/nodes',
  Pod: '/pods',
  Service: '/services',
  EndpointSlice: 'discovery.k8s.io/endpointslices',
  ServiceExport: 'multicluster.x-k8s.io/serviceexports',
  ServiceImport: 'multicluster.x-k8s.io/serviceimports',
  Cluster: 'sealane.io/clusters',
  Endpoint: 'sealane.io/endpoints',
  Gateway: 'sealane.io/gateways',
  RouteAgent: 'sealane.io/routeagents',
  AccessPolicy: 'sealane.io/accesspolicies',
  ClusterAccessPolicy: 'sealane.io/clusteraccesspolicies',
  TrafficPolicy: 'sealane.io/trafficpolicies',
  ClusterTrafficPolicy: 'sealane.io/clustertrafficpolicies',
  Topology: 'sealane.io/topologies',
  Membership: 'sealane.io/memberships',
  ClusterProperty: 'about.k8s.io/clusterproperties',
  Lease: 'coordination.k8s.io/leases',
}

function resourcesOf(kinds: readonly string[]): string[] {
  return kinds.map((kind) => RESOURCES[kind] ?? kind).sort()
}

/** The `group/resource` of each rule that has all of the verbs, without rules for single objects. */
function allowed(part: string, verbs: readonly string[]): string[] {
  return ['ClusterRole', 'Role']
    .flatMap(
      (kind) => (find(kind, `sealane-${part}`)?.['rules'] ?? []) as readonly (Rule & { resourceNames?: unknown })[],
    )
    .filter((rule) => rule.resourceNames === undefined && verbs.every((verb) => rule.verbs.includes(verb)))
    .flatMap(({ apiGroups, resources }) => resources.map((resource) => `${apiGroups[0]}/${resource}`))
}

t.test('on the node: metrics on its InternalIP besides, only where that is asked for', async (t) => {
  const podsOf = (statusListen: 'loopback' | 'node') => {
    const values = {
      ...DEFAULT_VALUES,
      gateway: { ...DEFAULT_VALUES.gateway, statusListen },
      routeagent: { ...DEFAULT_VALUES.routeagent, statusListen },
    }
    const parts = plain(planMember(values).flatMap((part) => part.objects))
    return ON_THE_NODE.map((part) => {
      const workload = parts.find(({ kind, metadata }) => kind === 'DaemonSet' && metadata.name === `sealane-${part}`)
      const { spec } = (workload as unknown as { spec: { template: { spec: PodSpec } } }).spec.template
      return { part: part as 'gateway' | 'routeagent', container: spec.containers[0] }
    })
  }
  const listens = (args: readonly string[]): string[] =>
    args.filter((_, i) => i > 0 && args[i - 1] === '--status-listen')
  for (const { part, container } of podsOf('loopback')) {
    t.same(listens(container.args), [`127.0.0.1:${STATUS_PORTS[part]}`], part)
    t.notMatch(JSON.stringify(container), 'NODE_IP', part)
  }
  for (const { part, container } of podsOf('node')) {
    const port = STATUS_PORTS[part]
    t.same(listens(container.args), [`127.0.0.1:${port}`, `[$(NODE_IP)]:${port}`], part)
    t.match(
      JSON.stringify(container),
      '{"name":"NODE_IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.hostIP"}}}',
      part,
    )
    t.equal(container.readinessProbe.httpGet.host, '127.0.0.1', `${part}: probes stay where they are`)
  }
})

t.test('PodMonitors find the ports that the pods name', async (t) => {
  const monitors = (values: InstallValues): ManifestObject[] =>
    plain([...planMember(values), ...planBroker(values)].flatMap((part) => part.objects)).filter(
      ({ kind }) => kind === 'PodMonitor',
    )
  t.same(monitors(DEFAULT_VALUES), [], 'none unless asked for')
  const metrics = { open: false, podMonitors: { enabled: true, interval: '15s', labels: { release: 'prom' } } }
  const some = monitors({ ...DEFAULT_VALUES, metrics })
  const names = (list: readonly ManifestObject[]): string[] => list.map(({ metadata }) => metadata.name)
  t.same(names(some), ['sealane-agent', 'sealane-dns', 'sealane-broker'], 'what listens on loopback is not down')
  const all = monitors({ ...METRICS_VALUES, metrics })
  t.same(new Set(names(all)), new Set([...MEMBER, 'broker'].map((part) => `sealane-${part}`)))
  for (const { metadata, spec } of all as unknown as (ManifestObject & { spec: Monitor })[]) {
    const part = metadata.name.slice('sealane-'.length)
    t.equal(metadata.labels?.['release'], 'prom', part)
    t.same(spec.podMetricsEndpoints, [{ port: 'status', path: '/metrics', interval: '15s' }], part)
    const workload = objects.find((object) => object.metadata.name === metadata.name && 'template' in specOf(object))
    const { template } = specOf(workload!) as unknown as {
      template: { metadata: { labels: Record<string, string> }; spec: PodSpec }
    }
    t.match(template.metadata.labels, spec.selector.matchLabels, `${part}: selector`)
    const port = STATUS_PORTS[part as keyof typeof STATUS_PORTS]
    t.ok(
      template.spec.containers[0].ports.some((one) => one.name === 'status' && one.containerPort === port),
      `${part}: port`,
    )
  }
})

function specOf(object: ManifestObject): object {
  return object['spec'] ?? {}
}

t.test('nobody may do everything', async (t) => {
  const roles = objects.filter(({ kind }) => /Role$/.test(kind))
  t.ok(roles.length >= 6)
  for (const { kind, metadata, rules } of roles as unknown as (ManifestObject & { rules: Rule[] })[]) {
    for (const { apiGroups, resources, verbs } of rules) {
      t.notOk([...apiGroups, ...resources, ...verbs].includes('*'), `${kind} ${metadata.name}`)
    }
  }
  t.same(allowed('dns', ['patch']), [], 'dns writes nothing')
  t.notOk(JSON.stringify(objects).includes('"privileged":true'), 'no privileged container')
})

t.test(
  'CRDs have descriptions, columns, short names of their own, and a status subresource with each status',
  async (t) => {
    const taken = new Set(['gtw', 'gw', 'ep', 'svc', 'no', 'cm'])
    for (const { metadata, spec } of ALL_CRDS) {
      for (const name of spec.names.shortNames ?? []) {
        t.notOk(taken.has(name), `${metadata.name}: short name ${name}`)
        taken.add(name)
      }
      t.equal(metadata.name, `${spec.names.plural}.${spec.group}`)
      t.equal(spec.versions.filter(({ storage }) => storage).length, 1, `${metadata.name}: one stored version`)
      for (const { name, schema, subresources, additionalPrinterColumns } of spec.versions) {
        const fields = schema?.openAPIV3Schema?.properties ?? {}
        t.equal(subresources?.status !== undefined, 'status' in fields, `${metadata.name} ${name}: status`)
        t.ok(
          additionalPrinterColumns?.some(({ type }) => type === 'date'),
          `${metadata.name} ${name}: age`,
        )
      }
      if (spec.group === 'sealane.io') t.same(spec.names.categories, ['sealane'], metadata.name)
    }
  },
)

t.test('the identity goes into a Secret of its own type', async (t) => {
  const secret = identitySecret('sealane-system', { 'ca.crt': 'PEM', 'broker.json': '{}' })
  t.same(
    [secret.metadata.name, secret['type'], secret['data']],
    ['sealane-identity', 'sealane.io/identity', { 'ca.crt': 'UEVN', 'broker.json': 'e30=' }],
  )
})

t.test('values change what they say they change', async (t) => {
  const member = { ...DEFAULT_VALUES.member, createNamespace: false, admissionPolicies: false, site: 'kind: Site' }
  const gateway = { ...DEFAULT_VALUES.gateway, userSpaceWireguard: false }
  const parts = planMember({
    ...DEFAULT_VALUES,
    member,
    gateway,
    dns: { ...DEFAULT_VALUES.dns, clusterIP: '10.43.0.9' },
  })
  const kinds = parts.flatMap((part) => part.objects).map(({ kind }) => kind)
  t.notOk(kinds.includes('Namespace'))
  t.notOk(kinds.includes('ValidatingAdmissionPolicy'))
  t.ok(kinds.includes('ConfigMap'))
  const text = JSON.stringify(parts)
  t.notOk(text.includes('/dev/net/tun'))
  t.match(text, '"clusterIP":"10.43.0.9"')
  const broker = planBroker({ ...DEFAULT_VALUES, broker: { ...DEFAULT_VALUES.broker, advertise: ['a:1', 'b:2'] } })
  t.match(JSON.stringify(broker), '"--advertise","a:1","--advertise","b:2"')
  const extraArgs = ['--allow-namespace=kube-a', '--global-range=242.0.0.0/8']
  const more = planBroker({ ...DEFAULT_VALUES, broker: { ...DEFAULT_VALUES.broker, extraArgs } })
  t.match(JSON.stringify(more), '"--allow-namespace=kube-a","--global-range=242.0.0.0/8","--status-listen"')
})

t.test("the broker's Service and its process agree on whose addresses arrive", async (t) => {
  const rows: readonly [type: string, said: string, policy: string | undefined, flag: string][] = [
    ['LoadBalancer', '', 'Local', 'Local'],
    ['LoadBalancer', 'Cluster', 'Cluster', 'Cluster'],
    ['NodePort', '', 'Cluster', 'Cluster'],
    ['NodePort', 'Local', 'Local', 'Local'],
    ['ClusterIP', '', undefined, 'Cluster'],
  ]
  for (const [type, externalTrafficPolicy, policy, flag] of rows) {
    const { broker } = DEFAULT_VALUES
    const service = { ...broker.service, type, externalTrafficPolicy }
    const planned = planBroker({ ...DEFAULT_VALUES, broker: { ...broker, service } }).flatMap((part) => part.objects)
    const spec = (kind: string): Record<string, unknown> =>
      planned.find((object) => object.kind === kind)?.['spec'] as Record<string, unknown>
    t.equal(spec('Service')['externalTrafficPolicy'], policy, `${type}, ${externalTrafficPolicy}`)
    const { template } = spec('StatefulSet') as unknown as { template: { spec: PodSpec } }
    const { args, env } = template.spec.containers[0]
    const want = [
      { name: EXTERNAL_TRAFFIC_POLICY, value: flag },
      { name: AUDIT_LOG, value: '-' },
      { name: 'SEALANE_ADMIN_LISTEN', value: '127.0.0.1:7444' },
      { name: AUTHORITY_DIR, value: '/etc/sealane/authority' },
      { name: NODE_ADDRESSES, valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'status.hostIPs' } } },
    ]
    t.strictSame(env, want, `${type}, ${externalTrafficPolicy}: process`)
    for (const name of ['--external-traffic-policy', '--audit-log', '--ca-dir'])
      t.notOk(args.includes(name), 'an earlier release does not know the flag')
  }
})
