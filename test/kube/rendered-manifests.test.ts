/** Kustomize and Helm make the same objects of manifests/ as install/ does; Argo CD can tell how healthy they are. */
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { formatYaml } from '../../kubeapi/yaml.ts'
import { ALL_CRDS } from '../../install/crds/all-crds.ts'
import { SERVICE_EXPORT, SERVICE_IMPORT } from '../../install/crds/multicluster-crds.ts'
import { objectMarksEnv } from '../../install/values/marks.ts'
import { dashboardConfigMaps } from '../../install/monitoring/all-dashboards.ts'
import { prometheusRule } from '../../install/monitoring/rule-file.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../install/values/install-values.ts'
import { KEPT_BY_HELM, METRICS_VALUES, REPLICAS_VALUES } from '../../scripts/manifest-files.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { HEALTH_ROWS, healthScripts } from './support/argocd-health.ts'
import { goVersion } from './support/build-programs.ts'
import { MANIFESTS, brokerObjects, memberObjects, sorted } from './support/installed-objects.ts'
import type { KubeObject } from './support/kube-request.ts'
import { renderPrograms } from './support/render-programs.ts'

t.setTimeout(1_800_000)

t.test('Helm and kustomize render the objects of install/', { skip: noGo() ?? false }, async (t) => {
  const { render } = await renderPrograms()
  const run = async (...args: string[]): Promise<KubeObject[]> => {
    const { stdout } = await promisify(execFile)(render, args, { maxBuffer: 64 << 20 })
    return sorted(JSON.parse(stdout) as unknown[])
  }
  const helm = async (values?: object): Promise<KubeObject[]> => {
    if (values === undefined) return asElsewhere(await run('helm', join(MANIFESTS, 'chart')))
    const file = join(temporaryFolder(t), 'values.yaml')
    writeFileSync(file, formatYaml(values))
    return asElsewhere(await run('helm', join(MANIFESTS, 'chart'), file))
  }

  await t.test('with default values', async (t) => {
    t.same(await run('kustomize', join(MANIFESTS, 'base')), memberObjects(), 'kustomize, member')
    t.same(await run('kustomize', join(MANIFESTS, 'broker')), brokerObjects(), 'kustomize, broker')
    t.same(
      await run('kustomize', join(MANIFESTS, 'broker-replicas')),
      brokerObjects(REPLICAS_VALUES),
      'kustomize, replicas',
    )
    t.same(await run('kustomize', join(MANIFESTS, 'crds')), sorted(ALL_CRDS), 'kustomize, CRDs')
    t.same(await run('kustomize', withComponent(t)), memberObjects(METRICS_VALUES), 'kustomize, member with metrics')
    t.same(
      await run('kustomize', withComponent(t, 'base', 'monitoring/member')),
      sorted([
        ...memberObjects(METRICS_VALUES),
        prometheusRule('member', DEFAULT_VALUES.member.namespace),
        ...dashboardConfigMaps(DEFAULT_VALUES.member.namespace),
      ]),
      'kustomize, member with monitoring',
    )
    for (const [folder, values] of [
      ['broker', DEFAULT_VALUES],
      ['broker-replicas', REPLICAS_VALUES],
    ] as const) {
      const metrics = METRICS_VALUES.metrics
      t.same(
        await run('kustomize', withComponent(t, folder, 'monitoring/broker')),
        sorted([...brokerObjects({ ...values, metrics }), prometheusRule('broker', values.broker.namespace)]),
        `kustomize, ${folder} with monitoring`,
      )
    }
    const openshift: InstallValues = { ...DEFAULT_VALUES, platform: { openshift: true, seLinuxOptions: {} } }
    t.same(
      await run('kustomize', withComponent(t, 'base', 'openshift')),
      memberObjects(openshift),
      'kustomize, OpenShift',
    )
    t.same(await helm(), sorted([...ALL_CRDS, ...memberObjects()]), 'helm')
  })

  await t.test('a kustomization with marks of its own makes what the values make', async (t) => {
    const marks = { labels: { team: 'net' }, annotations: { 'example.org/owner': 'net' } }
    const folder = temporaryFolder(t)
    // The patch that manifests/README.md describes.
    const patches = objectMarksEnv(marks).map((value) => ({
      target: { kind: 'Deployment|DaemonSet', name: 'sealane-(agent|dns|gateway|routeagent)' },
      patch: formatYaml([{ op: 'add', path: '/spec/template/spec/containers/0/env/-', value }]),
    }))
    const kustomization = {
      resources: [relative(folder, join(MANIFESTS, 'base'))],
      patches,
      labels: [{ pairs: marks.labels, includeTemplates: true }],
      commonAnnotations: marks.annotations,
    }
    writeFileSync(join(folder, 'kustomization.yaml'), formatYaml(kustomization))
    t.same(await run('kustomize', folder), memberObjects({ ...DEFAULT_VALUES, objects: marks }))
  })

  await t.test('with every value another one', async (t) => {
    const values = otherValues()
    t.same(await helm(values), sorted([...ALL_CRDS, ...memberObjects(values), ...brokerObjects(values)]))
    const neither = { member: { enabled: false } }
    t.same(await helm(neither), sorted(ALL_CRDS), 'nothing but the CRDs')
  })

  await t.test('both forms of the broker', async (t) => {
    for (const form of [DEFAULT_VALUES, REPLICAS_VALUES]) {
      // An API server treats an empty map of annotations as none: Helm renders it, and install/ leaves it out.
      const service = { ...form.broker.service, annotations: { a: 'b' } }
      const values = { ...form, broker: { ...form.broker, enabled: true, service } }
      t.same(
        await helm(values),
        sorted([...ALL_CRDS, ...memberObjects(values), ...brokerObjects(values)]),
        form.broker.store,
      )
    }
  })

  await t.test('a broker behind each type of Service', async (t) => {
    for (const type of ['LoadBalancer', 'NodePort', 'ClusterIP']) {
      const { broker } = DEFAULT_VALUES
      const service = { ...broker.service, type, annotations: { a: 'b' } }
      const values = { ...DEFAULT_VALUES, broker: { ...broker, enabled: true, service } }
      t.same(await helm(values), sorted([...ALL_CRDS, ...memberObjects(values), ...brokerObjects(values)]), type)
    }
  })

  await t.test("Argo CD's health scripts", async (t) => {
    const scripts = healthScripts()
    const questions = HEALTH_ROWS.map(({ kind, object }) => ({ script: scripts.get(kind) ?? kind, object }))
    const asked = promisify(execFile)(render, ['health'])
    asked.child.stdin?.end(JSON.stringify(questions))
    const answers = JSON.parse((await asked).stdout) as { status: string; message: string }[]
    for (const [i, { kind, want }] of HEALTH_ROWS.entries()) {
      t.equal(`${answers[i]?.status ?? ''}: ${answers[i]?.message ?? ''}`, want, kind)
    }
    t.same(new Set(HEALTH_ROWS.map(({ kind }) => kind)), new Set(scripts.keys()), 'each script is tried')
  })

  await t.test('values that cannot be right are refused', async (t) => {
    for (const values of [
      { gatway: {} },
      { image: { tag: '1" evil: "' } },
      { agent: { replicas: 'two' } },
      { logLevel: 'loud' },
      { gateway: { statusListen: '0.0.0.0' } },
      { metrics: { podMonitors: { interval: 'often' } } },
      { broker: { service: { type: 'ExternalName' } } },
      { objects: { labels: { 'app.kubernetes.io/name': 'mine' } } },
      { objects: { labels: { team: 'not a value' } } },
      { objects: { annotations: { 'sealane.io/site-digest': 'x' } } },
      { pods: { labels: { 'no key': 'x' } } },
      { pods: { annotations: { 'node.sealane.io/x': 'y' } } },
    ]) {
      await t.rejects(helm(values), /values don't meet the specifications/, JSON.stringify(values))
    }
  })

  await t.test('the CRDs of the Multi-Cluster Services API are those of its project', async (t) => {
    const facts = (crds: readonly unknown[]): unknown => withoutWords(sorted(crds))
    t.same(facts([SERVICE_EXPORT, SERVICE_IMPORT]), facts(await run('mcs')))
  })
})
/** Only the chart says which objects Helm keeps: all namespaces. */
function asElsewhere(objects: readonly KubeObject[]): KubeObject[] {
  const changed = objects.map((object) => {
    if (object.kind !== 'Namespace') return object
    const { annotations = {}, ...metadata } = object.metadata
    const [key = '', value] = Object.entries(KEPT_BY_HELM)[0] ?? []
    const { [key]: said, ...rest } = annotations
    if (said !== value) throw new Error(`Helm would remove Namespace ${metadata.name}`)
    return { ...object, metadata: { ...metadata, annotations: rest } }
  })
  return sorted(changed)
}

function noGo(): string | undefined {
  return goVersion() === undefined ? 'needs Go to build the renderers' : undefined
}

/** A kustomization as a user would write it: a base, and a component. */
function withComponent(t: Test, name = 'base', added = 'metrics'): string {
  const folder = temporaryFolder(t)
  const [base, component] = [name, added].map((name) => relative(folder, join(MANIFESTS, name)))
  const kustomization = { resources: [base], components: [component] }
  writeFileSync(join(folder, 'kustomization.yaml'), formatYaml(kustomization))
  return folder
}

function otherValues(): InstallValues {
  const pods = {
    // Helm merges maps into the defaults, so each entry of the defaults is given again.
    resources: { requests: { cpu: '1', memory: '64Mi' }, limits: { memory: '1Gi' } },
    nodeSelector: { 'disk type': 'fast "one"' },
    tolerations: [{ key: 'a', operator: 'Equal' as const, value: 'b', effect: 'NoSchedule' }],
    priorityClassName: 'net-critical',
  }
  const site = 'apiVersion: sealane.io/v1alpha1\nkind: Site # "quoted" {{ not a template }}\n\n'
  return {
    image: { repository: 'registry.example.org:5000/net/sealane', tag: 'v2', pullPolicy: 'Always' },
    imagePullSecrets: [{ name: 'registry' }],
    logLevel: 'debug',
    objects: {
      labels: { team: 'net', 'example.org/tier': 'all' },
      annotations: { 'example.org/why': 'a: "b" <c> $(NODE_NAME) {{ not a template }}' },
    },
    pods: { labels: { 'example.org/tier': 'pod' }, annotations: { 'example.org/scan': 'on' } },
    platform: { openshift: true, seLinuxOptions: { type: 'spc_t' } },
    member: {
      enabled: true,
      namespace: 'net',
      createNamespace: false,
      site,
      admissionPolicies: false,
      networkPolicies: false,
      criticalPodsQuota: true,
    },
    agent: { replicas: 3, proxySecret: 'corporate-proxy', ...pods },
    dns: { replicas: 1, clusterIP: '10.43.0.11', ...pods },
    gateway: { userSpaceWireguard: false, statusListen: 'node', replace: 'never', ...pods },
    routeagent: { statusListen: 'node', ...pods },
    console: { enabled: true, ...pods },
    metrics: {
      open: true,
      podMonitors: {
        enabled: true,
        interval: '1m',
        labels: { release: 'a "b"', 'app.kubernetes.io/name': 'not this' },
      },
    },
    broker: {
      enabled: true,
      namespace: 'hub',
      createNamespace: false,
      networkPolicies: false,
      advertise: ['one.example.org:7443', '[2001:db8::1]:443'],
      clusterset: 'prod',
      topologyFrom: 'object',
      extraArgs: ['--allow-namespace=kube-tools', '--global-range=242.0.0.0/8'],
      service: {
        type: 'NodePort',
        annotations: { 'example.org/lb': 'a: b' },
        loadBalancerClass: 'x',
        externalTrafficPolicy: 'Local',
      },
      store: 'etcd',
      replicas: 5,
      etcd: { url: 'etcd://sealane@one.example.org:2379/hub', login: 'password', secret: 'hub-etcd' },
      storage: { size: '5Gi', storageClassName: 'fast' },
      ...pods,
    },
    etcd: {
      enabled: true,
      image: 'registry.example.org/etcd:3.6.1',
      storage: { size: '20Gi', storageClassName: 'fast' },
      ...pods,
    },
  }
}

/** The objects without descriptions, which are in our own words, and with lists that are sets in a fixed order. */
function withoutWords(value: unknown, key = ''): unknown {
  if (Array.isArray(value)) {
    const items = value.map((item) => withoutWords(item))
    return key === 'required' || key === 'enum' ? items.sort() : items
  }
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).filter(([name, inner]) => name !== 'description' || typeof inner !== 'string')
  return Object.fromEntries(entries.map(([name, inner]) => [name, withoutWords(inner, name)]))
}
