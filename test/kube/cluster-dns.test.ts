/** A real CoreDNS with the configuration of our plan, on the objects of a real API server. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { applyClusterDns } from '../../cli/cluster-dns/apply-cluster-dns.ts'
import {
  type ClusterDnsClient,
  type ClusterDnsPlan,
  type DnsObject,
  configMapRef,
} from '../../cli/cluster-dns/dns-change.ts'
import { adminOf } from '../../cli/context/cluster-admin.ts'
import { planClusterDns, planClusterDnsRemoval } from '../../cli/cluster-dns/plan-cluster-dns.ts'
import { openKubeApi } from '../../kubeapi/kube/kube-api.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { type RunningDns, startDns } from '../dns/dns-server.ts'
import type { TYPE } from '../dns/wire.ts'
import { clusterSetIp, workedExamples } from '../dns/zone-fixture.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { DIFFERENCES, QUESTIONS, type Question, gist } from './coredns/questions.ts'
import { type CoreDns, coreDnsMissing, startCoreDns } from './coredns/run-coredns.ts'
import { type ControlPlane, startControlPlane } from './support/control-plane.ts'
import { kubeProgramsMissing } from './support/kube-programs.ts'
import type { Json } from './support/kube-request.ts'
import { serviceObject, sliceObject } from '../support/objects/service-objects.ts'

t.setTimeout(1_800_000)

const ZONE = 'clusterset.local'
/** The answer of this CoreDNS for names that none of its plugins serves. */
const NOBODY = 'SERVFAIL'
const IMPORTS = '/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports'
const SLICES = '/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices'
const COREFILE_MAP = '/api/v1/namespaces/kube-system/configmaps/coredns'

t.test('cluster DNS', { skip: kubeProgramsMissing() ?? coreDnsMissing() ?? false }, async (t) => {
  const whole = t
  const directory = temporaryFolder(t)
  const plane = await startControlPlane({
    name: 'west',
    directory,
    serviceCIDR: '10.43.0.0/16',
    controllers: false,
  })
  t.teardown(() => plane.stop())
  await putObjects(plane)
  const { signal } = new AbortController()
  const clock = new SystemClock()
  const kube = await openKubeApi(
    { clock, logger: new CapturingLogger() },
    { namespace: 'sealane-system', kubeconfig: plane.kubeconfig },
  )
  t.teardown(() => kube.close())
  const admin = adminOf(kube)
  const client: ClusterDnsClient = {
    get: async (ref, signal) => await admin.get(ref, signal),
    replace: ({ object, before, after }, signal) => admin.replace(object, before, after, signal),
  }
  // No other process gets this port while the server is away.
  const forwardTo = `127.0.0.1:${await freePort()}`
  let dns = await startDns(t, kube, { listen: [forwardTo] })
  const options = { domain: ZONE, forwardTo }

  const original = await putCorefile(plane)
  const coreDns = await startCoreDns({ name: 'coredns', directory, ...original })
  t.teardown(() => coreDns.program.kill())
  const oracle = await startOracle(plane)
  t.teardown(() => oracle.program.kill())
  await whenFollowing(coreDns, oracle, dns)
  const before = await answers(coreDns, CLUSTER_QUESTIONS)
  const change = (plan: (present: readonly DnsObject[]) => ClusterDnsPlan): ReturnType<typeof applyClusterDns> =>
    applyClusterDns(client, 'coredns', plan, signal)

  await t.test('before: the cluster’s own names, and nobody for ours', async (t) => {
    t.equal(before['web.shop.svc.cluster.local A'], 'NOERROR\nweb.shop.svc.cluster.local. 10.43.0.80')
    t.equal(before['outside.example A'], 'NOERROR\noutside.example. 192.0.2.53')
    t.equal(gist(await coreDns.ask(`web.shop.svc.${ZONE}`, 'A')), NOBODY)
  })

  await t.test('the ConfigMap is changed, and CoreDNS follows by itself', async (t) => {
    const { plan } = await change((present) => planClusterDns('coredns', present, options))
    t.match(plan, { problems: [], changes: [{ effect: { how: 'by itself' } }] })
    coreDns.writeCorefile(await corefileOf(plane))
    await answered(coreDns, `NOERROR\nweb.shop.svc.${ZONE}. 243.0.0.7`)
    t.same((await change((present) => planClusterDns('coredns', present, options))).plan.changes, [], 'once is enough')
  })

  await t.test('who read it before somebody else wrote does not write', async (t) => {
    const ref = configMapRef('coredns')
    const old = await client.get(ref, signal)
    await plane.api.merge(COREFILE_MAP, { metadata: { annotations: { note: 'mine' } } })
    t.equal(await client.replace({ object: ref, before: old, after: old }, signal), false)
    t.equal(await client.get({ ...ref, apiVersion: 'example.org/v1' }, signal), undefined, 'a kind that nobody knows')
  })

  await t.test('all other names are answered as before', async (t) => {
    t.same(await answers(coreDns, CLUSTER_QUESTIONS), before)
  })

  await t.test('the same answers as CoreDNS’ own multicluster zone', (t) => comparison(t, coreDns, oracle))

  await t.test('nothing is kept for more than five seconds, not even "no such name"', async (t) => {
    const late = ['late', 'later'].map((name) => `${name}.shop.svc.${ZONE}`)
    for (const name of late) t.equal(gist(await coreDns.ask(name, 'A')), 'NXDOMAIN')
    const asked = performance.now()
    for (const name of ['late', 'later']) await plane.api.post(IMPORTS, bare(clusterSetIp(name, ['243.0.1.1'], [])))
    for (const name of late) {
      await eventually(async () => (await coreDns.ask(name, 'A')).answers.length === 1, { deadlineMs: 30_000 })
    }
    // A Corefile usually sets 30 s.
    const took = performance.now() - asked
    t.ok(took < 15_000, `${Math.round(took)} ms after the first question`)
    for (const [name, type] of QUESTIONS) {
      const { answers, authorities } = await coreDns.ask(absolute(name), type)
      for (const { ttl } of [...answers, ...authorities]) if (ttl > 5) t.fail(`${type} ${name}: ${ttl} s`)
    }
  })

  await t.test('without anybody behind it: SERVFAIL soon, other names as before, and back in seconds', async (t) => {
    await dns.stop()
    const began = performance.now()
    const failed = await Promise.all(
      Array.from({ length: 20 }, (_, i) => coreDns.ask(`none-${i}.shop.svc.${ZONE}`, 'A').then(gist)),
    )
    t.same([...new Set(failed)], ['SERVFAIL'])
    t.ok(performance.now() - began < 5000, 'nobody waits as long as CoreDNS would')
    t.same(await answers(coreDns, CLUSTER_QUESTIONS), before)
    // The server belongs to the whole test, so that it survives this part.
    dns = await startDns(whole, kube, { listen: [options.forwardTo] })
    await eventually(async () => gist(await coreDns.ask(`none-0.shop.svc.${ZONE}`, 'A')) === 'NXDOMAIN', {
      deadlineMs: 10_000,
      say: 'it is asked again',
    })
  })

  await t.test('taken out: the ConfigMap to the byte, and every name as before', async (t) => {
    await answered(coreDns, `NOERROR\nweb.shop.svc.${ZONE}. 243.0.0.7`)
    const { plan } = await change((present) => planClusterDnsRemoval('coredns', present))
    t.equal(plan.changes.length, 1)
    t.equal(await corefileOf(plane), original.corefile)
    coreDns.writeCorefile(await corefileOf(plane))
    await answered(coreDns, NOBODY)
    t.same(await answers(coreDns, CLUSTER_QUESTIONS), before)
    t.same((await change((present) => planClusterDnsRemoval('coredns', present))).plan.changes, [])
  })

  t.equal(coreDns.program.failure, undefined)

  async function startOracle({ kubeconfig }: ControlPlane): Promise<CoreDns> {
    const port = await freePort()
    const zones = `kubernetes cluster.local ${ZONE} {\nkubeconfig ${kubeconfig}\nmulticluster ${ZONE}\n}`
    return startCoreDns({
      name: 'oracle',
      directory,
      port,
      corefile: `.:${port} {\nbind 127.0.0.1\nerrors\n${zones}\n}\n`,
    })
  }
})

/** Sends each question to both servers: the answers are equal, or differ as the table of differences says. */
async function comparison(t: Test, ours: CoreDns, theirs: CoreDns): Promise<void> {
  const document = readFileSync(join(ROOT, 'docs/reference.md'), 'utf8')
  for (const { row } of DIFFERENCES) t.ok(document.includes(`| ${row} |`), `docs/reference.md tells of ${row}`)
  for (const [name, type] of QUESTIONS) {
    const known = DIFFERENCES.find(({ question }) => question[0] === name && question[1] === type)
    const full = absolute(name)
    const [our, their] = await Promise.all([ours.ask(full, type), theirs.ask(full, type)])
    const got = { ours: gist(our), coreDns: gist(their) }
    const inFull = (text: string): string => text.replaceAll('zone.', `${ZONE}.`)
    const want =
      known === undefined
        ? { ours: got.coreDns, coreDns: got.coreDns }
        : { ours: inFull(known.ours), coreDns: inFull(known.coreDns) }
    t.same(got, want, `${type} ${name}`)
  }
}

/** Names of the cluster's own zone, of a zone elsewhere, and of no zone. */
const CLUSTER_QUESTIONS: readonly Question[] = [
  ['kubernetes.default.svc.cluster.local', 'A'],
  ['web.shop.svc.cluster.local', 'A'],
  ['web.shop.svc.cluster.local', 'AAAA'],
  ['_http._tcp.web.shop.svc.cluster.local', 'SRV'],
  ['pods.shop.svc.cluster.local', 'A'],
  ['pod-0.pods.shop.svc.cluster.local', 'A'],
  ['none.shop.svc.cluster.local', 'A'],
  ['dns-version.cluster.local', 'TXT'],
  [`web.shop.svc.${ZONE}.shop.svc.cluster.local`, 'A'],
  ['80.0.43.10.in-addr.arpa', 'PTR'],
  ['outside.example', 'A'],
  ['nobody.example', 'A'],
  ['local', 'A'],
]

async function answers(coreDns: CoreDns, questions: readonly Question[]): Promise<Record<string, string>> {
  const rows = questions.map(async ([name, type]) => [`${name} ${type}`, gist(await coreDns.ask(name, type))] as const)
  return Object.fromEntries(await Promise.all(rows))
}

function absolute(name: string): string {
  return name === '' ? `${ZONE}.` : `${name}.${ZONE}.`
}

async function answered(coreDns: CoreDns, want: string, type: keyof typeof TYPE = 'A'): Promise<void> {
  await eventually(async () => gist(await coreDns.ask(`web.shop.svc.${ZONE}`, type)) === want, {
    deadlineMs: 30_000,
    say: `${coreDns.program.name} answers ${JSON.stringify(want)}`,
  })
}

/** Waits until all three have read all objects, by those that were written last. */
async function whenFollowing(coreDns: CoreDns, oracle: CoreDns, dns: RunningDns): Promise<void> {
  const waited = { deadlineMs: 30_000 }
  await eventually(async () => (await coreDns.ask('pods.shop.svc.cluster.local', 'A')).answers.length === 2, waited)
  await eventually(async () => (await oracle.ask(`dual.shop.svc.${ZONE}`, 'AAAA')).answers.length === 1, waited)
  await eventually(async () => (await oracle.ask(`web.shop.svc.${ZONE}`, 'A')).answers.length === 1, waited)
  await eventually(() => dns.status.notReady().length === 0, waited)
}

/** Applies the CRDs, the worked examples, and two services of the cluster itself. */
async function putObjects({ api }: ControlPlane): Promise<void> {
  for (const name of ['serviceimports.multicluster.x-k8s.io', 'gateways.sealane.io']) {
    const crd = parse(readFileSync(join(ROOT, `manifests/crds/${name}.yaml`), 'utf8')) as Json
    await api.post('/apis/apiextensions.k8s.io/v1/customresourcedefinitions', crd)
  }
  await api.post('/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' } })
  const examples = workedExamples()
  for (const [kind, path] of [
    ['ServiceImport', IMPORTS],
    ['EndpointSlice', SLICES],
  ] as const) {
    await examples.cache(kind).whenSynced(AbortSignal.timeout(5000))
    for (const object of examples.cache(kind).list()) {
      await eventually(() => api.post(path, bare(object)), { deadlineMs: 20_000, say: 'the CRD is served' })
    }
  }
  const ports = [{ name: 'http', port: 80 }]
  await api.post('/api/v1/namespaces/shop/services', serviceObject({ name: 'web' }, { clusterIP: '10.43.0.80', ports }))
  await api.post('/api/v1/namespaces/shop/services', serviceObject({ name: 'pods' }, { clusterIP: 'None', ports }))
  const endpoints = [{ addresses: ['10.42.0.7'], hostname: 'pod-0' }, { addresses: ['10.42.0.8'] }]
  const labels = { 'kubernetes.io/service-name': 'pods' }
  await api.post(SLICES, sliceObject({ name: 'pods-1', labels }, { endpoints, ports }))
}

/** The object without the fields that only a server sets. */
function bare(object: { readonly metadata: object }): Json {
  const { name, labels } = object.metadata as { name: string; labels?: object }
  return { ...object, metadata: { name, ...(labels === undefined ? {} : { labels }) } }
}

/**
 * Writes the ConfigMap kube-system/coredns, in which everything is replaced that a test may not use, such as outside
 * names.
 */
async function putCorefile(plane: ControlPlane): Promise<{ readonly port: number; readonly corefile: string }> {
  const port = await freePort()
  const corefile = `.:${port} {
    bind 127.0.0.1
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig ${plane.kubeconfig}
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    hosts {
        192.0.2.53 outside.example
        fallthrough
    }
    cache 30
    loop
    reload 2s 1s
    loadbalance
}`
  await plane.api.post('/api/v1/namespaces/kube-system/configmaps', {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'coredns' },
    data: { Corefile: corefile },
  })
  return { port, corefile }
}

async function corefileOf({ api }: ControlPlane): Promise<string> {
  const { data } = await api.get<{ data: Record<string, string> }>(COREFILE_MAP)
  return data['Corefile'] ?? ''
}
