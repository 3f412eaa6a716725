/**
 * A derived Service on a real API server with both families, under the agent's account: it is taken, kept without
 * further writes, repaired, left to a user who takes it over, and removed. A user's annotation on an import stays.
 */
import type { Test } from 'tap'
import { agentMetrics } from '../../../agent/loop/metrics.ts'
import { MirrorWriter } from '../../../agent/loop/mirror-writer.ts'
import { DerivedLoop } from '../../../agent/mirror/derived-loop.ts'
import { HeardGateways } from '../../../kubeapi/heard-gateways.ts'
import { DEFAULT_LOOP } from '../../../reconcile/loop.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { openKubeSite } from '../../../compose/site/kube-site.ts'
import { type KubeObject as ModelObject, objectKeyText } from '../../../model/objects.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { importObject, sliceObject } from '../../support/objects/service-objects.ts'
import type { Json, KubeRequest } from '../support/kube-request.ts'
import { clusterObject } from '../support/manifest-objects.ts'

const IMPORT = '/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports/web'
const SERVICE = '/api/v1/namespaces/shop/services/web-clusterset'
const CLUSTER = '/apis/sealane.io/v1alpha1/clusters/roma'
const SLICES = '/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices'

export interface DerivedServiceInit {
  /** A client with an administrator's rights. */
  readonly api: KubeRequest
  /** The kubeconfig of the agent. */
  readonly kubeconfig: string
}

export async function derivedService(t: Test, { api, kubeconfig }: DerivedServiceInit): Promise<void> {
  const stop = new AbortController()
  const { signal } = stop
  const [clock, logger, registry] = [new SystemClock(), new CapturingLogger(), createMetrics('agent')]
  const metrics = agentMetrics(registry)
  const { api: site } = await openKubeSite(
    { clock, logger, metrics: undefined },
    { access: { kubeconfig, namespace: 'sealane-system' }, settings: '', components: ['agent'], signal, env: {} },
  )
  await api.apply(CLUSTER, clusterObject({ id: 'roma' }, 'roma'))
  const writer = new MirrorWriter({ api: site, clock, logger, metrics })
  const init = { own: 'roma', removesOrphans: false, loop: { ...DEFAULT_LOOP, resyncMs: 200 } }
  const gateways = new HeardGateways({ api: site, clock, logger })
  const loop = new DerivedLoop({ api: site, writer, gateways, clock, logger, metrics }, init)
  const running = loop.run(signal)
  t.teardown(async () => {
    stop.abort()
    await running
    await site.close()
  })

  const labels = { 'app.kubernetes.io/managed-by': 'sealane' }
  const ports = [{ name: 'http', protocol: 'TCP', port: 80 }] as const
  const web = importObject({ name: 'web', namespace: 'shop', labels }, { type: 'ClusterSetIP', ports })
  const mirrored = {
    ...{ ...labels, 'endpointslice.kubernetes.io/managed-by': 'agent.sealane.io' },
    'multicluster.kubernetes.io/service-name': 'web',
    'multicluster.kubernetes.io/source-cluster': 'roma',
  }
  const endpoints = [{ addresses: ['10.1.0.5'], conditions: { ready: true } }]
  const slice = sliceObject(
    { name: 'web-roma-1', namespace: 'shop', labels: mirrored },
    { endpoints, ports: [{ name: 'http', protocol: 'TCP', port: 8080 }] },
  )
  const toWrite = (...objects: readonly ModelObject[]): Map<string, ModelObject> =>
    new Map(objects.map((object) => [objectKeyText(object), object]))
  const wanted = toWrite(web, slice)
  const arrived = async (): Promise<boolean> => {
    const failures = await writer.apply(wanted, signal)
    return failures.length === 0 && (await api.find(IMPORT)) !== undefined
  }
  await eventually(arrived, { deadlineMs: 60_000, say: 'the import arrives' })

  await api.merge(IMPORT, { metadata: { annotations: { 'sealane.io/derived-service': 'web-clusterset' } } })
  const isSaid = async (reason = 'DerivedServiceReady'): Promise<boolean> => {
    const status = (await api.get(IMPORT))['status'] as { conditions?: Json[] } | undefined
    return status?.conditions?.some((one) => one['reason'] === reason) === true
  }
  await eventually(() => isSaid(), { deadlineMs: 30_000, say: 'the condition says that it is there' })
  const before = await api.get(SERVICE)
  t.match(before['spec'], { ports: [{ port: 80, targetPort: 80 }], clusterIP: /^\d/ }, 'with what the server adds')
  const slicesBy = async (manager: string): Promise<Json[]> =>
    (await api.list(SLICES)).filter(
      ({ metadata: { labels = {} } }) =>
        labels['kubernetes.io/service-name'] === 'web-clusterset' &&
        labels['endpointslice.kubernetes.io/managed-by'] === manager,
    )
  const derived = (): Promise<Json[]> => slicesBy('agent.sealane.io')
  t.match(await derived(), [{ endpoints: [{ addresses: ['10.1.0.5'] }], ports: [{ name: 'http', port: 8080 }] }])

  const counted = async (what: RegExp): Promise<number> => Number(what.exec(await registry.text())?.[1] ?? 0)
  const rounds = (): Promise<number> =>
    counted(/^sealane_agent_loop_seconds_count\{.*loop="derived-services"\} (\d+)$/m)
  const writes = async (): Promise<number> => {
    const lines = (await registry.text()).matchAll(/^sealane_agent_writes_total\{[^}]*kind="Service"[^}]*\} (\d+)$/gm)
    return [...lines].reduce((sum, [, count]) => sum + Number(count), 0)
  }
  const [round, written] = [await rounds(), await writes()]
  await writer.apply(wanted, signal)
  await eventually(async () => (await rounds()) >= round + 3, { deadlineMs: 30_000, say: 'it looks again' })
  const after = await api.get(IMPORT)
  t.equal(after.metadata.annotations?.['sealane.io/derived-service'], 'web-clusterset', "the user's annotation stays")
  t.equal(
    (await api.get(SERVICE)).metadata.resourceVersion,
    before.metadata.resourceVersion,
    'nothing is written again',
  )
  t.ok(written > 0, 'it was written')
  t.equal(await writes(), written, 'and is not asked for again')

  const rows = [
    ['ClusterSetIP', ['IPv4', 'IPv6']],
    ['ClusterSetIP', ['IPv4']],
    ['ClusterSetIP', ['IPv6', 'IPv4']],
    ['Headless', ['IPv6', 'IPv4']],
    ['Headless', ['IPv6']],
    ['Headless', ['IPv4']],
    ['Headless', ['IPv4', 'IPv6']],
    ['ClusterSetIP', ['IPv4']],
  ] as const
  for (const [type, ipFamilies] of rows) {
    const what = `${type} ${ipFamilies.join(' and ')}`
    const spec = { type, ports, ipFamilies }
    await writer.apply(toWrite(importObject({ name: 'web', namespace: 'shop', labels }, spec)), signal)
    const isSo = async (): Promise<boolean> => {
      const has = (await api.find(SERVICE))?.['spec'] as Record<string, unknown> | undefined
      const ips = (has?.['clusterIPs'] as readonly string[] | undefined) ?? []
      return (
        (type === 'Headless' ? ips.join() === 'None' : ips.length === ipFamilies.length && !ips.includes('None')) &&
        String(has?.['ipFamilies']) === ipFamilies.join() &&
        has?.['ipFamilyPolicy'] === (ipFamilies.length === 2 ? 'RequireDualStack' : 'SingleStack')
      )
    }
    await eventually(isSo, { deadlineMs: 30_000, say: what })
    // The server shows a write before the writer has counted it.
    const seen = await rounds()
    await eventually(async () => (await rounds()) >= seen + 2, { deadlineMs: 30_000, say: 'it is counted' })
    const soFar = await writes()
    await eventually(async () => (await rounds()) >= seen + 5, { deadlineMs: 30_000, say: 'it looks again' })
    t.equal(await writes(), soFar, `${what}: it is not written again`)
    t.ok(await isSaid(), `${what}: it is said`)
  }

  const isRepaired = async (): Promise<boolean> => {
    const spec = (await api.find(SERVICE))?.['spec'] as { ports: Json[] } | undefined
    return spec?.ports.length === 1 && spec.ports[0]?.['port'] === 80
  }
  const theirs = { ports: [{ name: 'x', protocol: 'TCP', port: 7 }], selector: { app: 'web' } }
  await api.merge(SERVICE, { spec: theirs })
  const isLeft = async (): Promise<boolean> =>
    (await isSaid('DerivedServiceNameTaken')) && (await derived()).length === 0
  await eventually(isLeft, { deadlineMs: 30_000, say: 'a user takes it over' })
  t.match((await api.get(SERVICE))['spec'], theirs, 'and keeps it')
  const isMade = async (): Promise<boolean> => (await slicesBy('endpointslice-controller.k8s.io')).length > 0
  await eventually(isMade, { deadlineMs: 30_000, say: 'Kubernetes makes a slice, with the labels of the Service' })
  const made = await rounds()
  await eventually(async () => (await rounds()) >= made + 3, { deadlineMs: 30_000, say: 'it looks at the slice' })
  t.ok(await isMade(), 'the slice stays')
  const refusals = logger.lines.filter(({ fields }) => fields['reason'] === 'ObjectNotWritten')
  t.same(refusals, [], 'and nothing was asked of it')
  await api.merge(SERVICE, { spec: { selector: null } })
  await eventually(isRepaired, { deadlineMs: 30_000, say: 'without a selector it is derived again' })
  await api.merge(SERVICE, { spec: { ports: [{ name: 'http', protocol: 'TCP', port: 81 }] } })
  await eventually(isRepaired, { deadlineMs: 30_000, say: 'an edit is undone' })
  await api.merge(IMPORT, { metadata: { annotations: { 'sealane.io/derived-service': null } } })
  const isGone = async (): Promise<boolean> => (await api.find(SERVICE)) === undefined && (await derived()).length === 0
  await eventually(isGone, { deadlineMs: 30_000, say: 'it goes with the annotation' })
  t.same(
    logger.lines.filter(({ level }) => level === 'error'),
    [],
  )
  for (const path of [IMPORT, `${SLICES}/web-roma-1`, CLUSTER]) await api.delete(path)
}
