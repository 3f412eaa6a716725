/**
 * A platform engineer's day, on two real clusters: from nothing to the first call between them, joining again, joining
 * by files, a join that breaks off, and leaving in good and in bad order. Everything runs under its own ServiceAccount.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { parseAllDocuments } from 'yaml'
import { eventually } from '../../support/eventually.ts'
import { equalsGolden } from '../../support/golden.ts'
import type { Site } from '../support/callers.ts'
import {
  IMAGE,
  type InstallTarget,
  SYSTEM,
  type World,
  answered,
  brokerRefuses,
  changedSince,
  isBare,
  joinAgain,
  joinWords,
  noRefusals,
  settledObjects,
  tokenFile,
} from '../support/installing-world.ts'
import type { Json, KubeObject } from '../support/kube-request.ts'
import { dumpDifference, dumpObjects } from '../support/object-dump.ts'
import { sealane, startSealane, trySealane } from '../support/sealane-command.ts'

export async function fromNothing(t: Test, world: World): Promise<void> {
  await firstCall(t, world)
  await nothingNew(t, world)
  await t.test('members, as the broker knows them', (t) => members(t, world))
  await t.test('leaving', (t) => leaving(t, world))
  await t.test('a join by files', (t) => joinByFiles(t, world))
  await t.test('a join that is refused', (t) => refusedJoin(t, world))
  await t.test('a join that breaks off', (t) => brokenOff(t, world))
  await t.test('leaving with a broken part', (t) => brokenPart(t, world))
  await t.test('leaving while the broker is away', (t) => brokerAway(t, world))
  await t.test('uninstalling', (t) => uninstalling(t, world))
}

async function firstCall(t: Test, world: World): Promise<void> {
  const { hub, member, directory } = world
  const dry = await sealane(['broker', 'deploy', ...hub.at, '--service-type', 'NodePort', '--dry-run', ...IMAGE])
  t.match(dry.stderr, /created {3}StatefulSet sealane-broker\/sealane-broker/)
  t.strictSame(
    dumpDifference(hub.objects, await dumpObjects(hub.site.api)),
    [],
    'a dry run of the broker changes nothing',
  )

  const began = performance.now()
  const deployed = await sealane(['broker', 'deploy', ...hub.at, '--service-type', 'NodePort', ...IMAGE])
  t.equal(deployed.stdout, `sealane token create ${hub.at.join(' ')}\n`, 'it prints the command to run next')
  const token = await tokenFile(world, ['--uses', '2'])
  const first = await sealane([...joinWords(hub), '--token-file', token])
  const dryAt = performance.now()
  const dryJoin = await sealane([...joinWords(member), '--dry-run'])
  t.match(dryJoin.stderr, /^ {2}\+ DaemonSet sealane-system\/sealane-gateway$/m)
  t.match(
    dryJoin.stderr,
    /^ {2}~ Node c2n1\n.*gateway-chosen-by"\]: \(none\) -> "join"\n {6}metadata.labels\["sealane.io\/gateway"\]: \(none\) -> "true"$/m,
  )
  t.match(dryJoin.stderr, /^ {2}~ ConfigMap kube-system\/coredns .*\n {6}data.Corefile:\n {8}\+ # sealane begin$/m)
  t.equal(dryJoin.stdout, 'nothing was changed\n')
  t.strictSame(
    dumpDifference(member.objects, await dumpObjects(member.site.api)),
    [],
    'a dry run of a join changes nothing',
  )
  const dryMs = performance.now() - dryAt
  const second = await sealane([...joinWords(member), '--token-file', token])
  await sealane(['export', 'hello', '--namespace', 'demo', ...hub.at])
  await answered(world)
  const ms = performance.now() - began - dryMs
  const parts = [deployed, first, second].map((done) => (done.ms / 1000).toFixed(1))
  t.comment(
    `from two bare clusters to the first answered call: ${(ms / 1000).toFixed(1)} s (deploy, join, join: ${parts.join(', ')} s)`,
  )
  t.equal(first.stdout, 'c1 has joined with gateway c1n1; it is the first member\n')
  t.equal(second.stdout, 'c2 has joined with gateway c2n1; it reaches c1\n')
  equalsGolden(t, masked(second.stderr, directory), 'install/join.txt')
  await noRefusals(t, hub, member)
}

async function nothingNew(t: Test, world: World): Promise<void> {
  const { member, directory } = world
  const before = await settledObjects(member)
  const again = await sealane([...joinWords(member), '--token-file', join(directory, 'token')])
  t.match(again.stderr, /already joined as c2: the token is not used/)
  t.notMatch(again.stderr, /^ {2}(created|changed) /m, 'the second join has nothing to do')
  t.strictSame(await changedSince(member, before), [], 'and changes nothing')
  t.comment(`a second join: ${(again.ms / 1000).toFixed(1)} s`)
}

/** The command goes to the broker through a forwarded port of its pod. */
async function members(t: Test, { hub }: World): Promise<void> {
  const times = (text: string): string => text.replace(/\d{4}-\d\d-\d\dT[0-9:.]+Z/g, 'TIME')
  const listed = await sealane(['cluster', 'list', ...hub.at])
  const rows = listed.stdout.trimEnd().split('\n').slice(1)
  t.strictSame(
    rows.map((row) => times(row).split(/ {2,}/).slice(0, 3)),
    [
      ['c1', 'in contact', 'TIME'],
      ['c2', 'in contact', 'TIME'],
    ],
  )
  const refused = await trySealane(['cluster', 'evict', 'c2', ...hub.at])
  t.equal(refused.code, 1)
  t.equal(
    times(refused.stderr).replace(/context .* answered/, 'HUB answered'),
    'sealane: the broker of HUB answered: cluster "c2" has been in contact with this broker since TIME: ' +
      'run "sealane leave" there, or evict it anyway with --force\nreason: MemberInContact\n',
  )
}

async function leaving(t: Test, world: World): Promise<void> {
  const { member, directory } = world
  const left = await sealane(['leave', '--yes', ...member.at])
  t.equal(left.stdout, 'c2 has left the clusterset; Sealane is removed\n')
  t.comment(`leaving: ${(left.ms / 1000).toFixed(1)} s`)
  await isBare(t, member, directory)
  const again = await trySealane(['leave', '--yes', ...member.at])
  t.equal(again.code, 1)
  t.match(again.stderr, /Sealane is not installed/)
}

/** Does what a GitOps agent does: it applies each document under its own name, several times. */
async function applyAll({ site }: InstallTarget, text: string): Promise<void> {
  const objects = parseAllDocuments(text).map((document) => document.toJS() as KubeObject)
  for (const object of objects) {
    await eventually(() => applyOne(site, object), { deadlineMs: 20_000, say: `${object.kind} is taken` })
  }
}

async function applyOne({ api }: Site, object: KubeObject): Promise<Json> {
  const { apiVersion, kind, metadata } = object
  const root = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`
  const { resources } = await api.get<{ resources: { name: string; kind: string; namespaced: boolean }[] }>(root)
  const resource = resources.find((one) => one.kind === kind && !one.name.includes('/'))
  if (resource === undefined) throw new Error(`${kind} is not served yet`)
  const within = resource.namespaced ? `/namespaces/${metadata.namespace ?? ''}` : ''
  return await api.apply(`${root}${within}/${resource.name}/${metadata.name}`, object)
}

async function joinByFiles(t: Test, world: World): Promise<void> {
  const { hub, member, directory } = world
  const printed = await sealane([...joinWords(member), '--output', 'yaml'])
  t.notMatch(printed.stdout, /sealane1\./, 'no token is in the files')
  t.match(printed.stderr, /kubectl label node c2n1 sealane\.io\/gateway=true/, 'what files cannot carry is said')
  const token = readFileSync(await tokenFile(world, ['--cluster-id', 'c2']), 'utf8')
  await applyAll(member, printed.stdout)
  const data = { token: Buffer.from(token).toString('base64') }
  const metadata = { name: 'sealane-identity', namespace: SYSTEM }
  const secret = { apiVersion: 'v1', kind: 'Secret', type: 'sealane.io/identity', metadata, data }
  await member.site.api.apply(`/api/v1/namespaces/${SYSTEM}/secrets/sealane-identity`, secret)
  await member.site.api.merge('/api/v1/nodes/c2n1', { metadata: { labels: { 'sealane.io/gateway': 'true' } } })
  await eventually(async () => (await connections(member)) === 'c1 up', { deadlineMs: 60_000, say: 'the lane is up' })
  // The same files are applied again, as such agents do all day, and the identity stays.
  await applyAll(member, printed.stdout)
  t.equal(await connections(member), 'c1 up')
  const joined = await sealane([...joinWords(member), '--token-file', join(directory, 'token')])
  t.match(joined.stderr, /already joined as c2/, 'and the command line finds nothing but cluster DNS to do')
  await answered(world)
  await noRefusals(t, hub, member)
  await sealane(['leave', '--yes', ...member.at])
  await isBare(t, member, directory)
}

interface GatewayObject extends KubeObject {
  readonly status?: { readonly connections?: readonly { readonly cluster: string; readonly state: string }[] }
}

async function connections({ site }: InstallTarget): Promise<string> {
  const gateways = await site.api.list<GatewayObject>('/apis/sealane.io/v1alpha1/gateways').catch(() => [])
  return gateways
    .flatMap(({ status }) => (status?.connections ?? []).map((one) => `${one.cluster} ${one.state}`))
    .join(', ')
}

/** The next join completes what a refused one left. */
async function refusedJoin(t: Test, world: World): Promise<void> {
  const { member } = world
  const token = await tokenFile(world)
  const asHub = joinWords(member).map((word) => (word === 'c2' ? 'c1' : word))
  const began = performance.now()
  const refused = await trySealane([...asHub, '--token-file', token])
  t.equal(refused.code, 1)
  t.match(refused.stderr, /\nsealane: cluster: "c1" is already a member \(joined .*\): choose another cluster id; /)
  t.comment(`an id that is taken is told after ${((performance.now() - began) / 1000).toFixed(1)} s`)
  const done = await sealane([...joinWords(member), '--token-file', token])
  t.equal(done.stdout, 'c2 has joined with gateway c2n1; it reaches c1\n', 'the same token, another id')
  await sealane(['leave', '--yes', ...member.at])
}

async function brokenOff(t: Test, world: World): Promise<void> {
  const { member } = world
  const words = [...joinWords(member), '--token-file', await tokenFile(world, ['--cluster-id', 'c2'])]
  for (const line of ['ClusterRole sealane-view', 'Deployment sealane-system/sealane-agent', 'joined']) {
    const running = startSealane(words)
    await eventually(() => running.said().includes(line), { deadlineMs: 60_000, intervalMs: 5, say: `it says ${line}` })
    running.process.kill('SIGINT')
    const { code, stderr } = await running.result
    t.equal(code, 1, `broken off after "${line}"`)
    t.match(stderr, /sealane: interrupted before it was complete\n$/)
  }
  const done = await sealane(words)
  t.equal(done.stdout, 'c2 has joined with gateway c2n1; it reaches c1\n', 'the same command goes on')
  await answered(world)
}

async function brokenPart(t: Test, world: World): Promise<void> {
  const { member, directory } = world
  const path = `/apis/apps/v1/namespaces/${SYSTEM}/daemonsets/sealane-routeagent`
  const containers = [{ name: 'routeagent', image: 'localhost/nothing:there' }]
  await member.site.api.apply(path, {
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { name: 'sealane-routeagent', namespace: SYSTEM },
    spec: { template: { spec: { containers } } },
  })
  await eventually(async () => !(await isReady(member, 'routeagent')), { deadlineMs: 30_000, say: 'its pod is gone' })
  // The time-out suffices for all that works, so that only what is broken remains to be named.
  const refused = await trySealane(['leave', '--yes', ...member.at, '--timeout', '20s'])
  t.equal(refused.code, 1)
  t.match(
    refused.stderr,
    /waited 20s for every node to remove Sealane from its kernel: routeagent on c2n1/,
    'what is broken is named',
  )
  const forced = await sealane(['leave', '--yes', ...member.at, '--timeout', '30s', '--force'])
  t.match(forced.stderr, /repaired {2}DaemonSet sealane-system\/sealane-routeagent/)
  t.equal(forced.stdout, 'c2 has left the clusterset; Sealane is removed\n')
  t.comment(`leaving by force with a broken part: ${(forced.ms / 1000).toFixed(1)} s`)
  await isBare(t, member, directory)
}

interface PodObject extends KubeObject {
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] }
}

async function isReady({ site }: InstallTarget, part: string): Promise<boolean> {
  const selector = encodeURIComponent(`app.kubernetes.io/component=${part}`)
  const pods = await site.api.list<PodObject>(`/api/v1/namespaces/${SYSTEM}/pods?labelSelector=${selector}`)
  return pods.some(({ status }) =>
    status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True'),
  )
}

async function brokerAway(t: Test, world: World): Promise<void> {
  const { hub, member, directory } = world
  await joinAgain(world, member)
  const broker = '/apis/apps/v1/namespaces/sealane-broker/statefulsets/sealane-broker'
  await hub.site.api.merge(broker, { spec: { replicas: 0 } })
  await eventually(async () => (await hub.site.api.list('/api/v1/namespaces/sealane-broker/pods')).length === 0, {
    deadlineMs: 30_000,
    say: 'the broker is away',
  })
  await brokerRefuses(world)
  const refused = await trySealane(['leave', '--yes', ...member.at, '--timeout', '10s'])
  t.equal(refused.code, 1)
  t.match(refused.stderr, /waited 10s for the leave to be reported to the broker: agent: broker at 192\.0\.2\.11:\d+: /)
  const forced = await sealane(['leave', '--yes', ...member.at, '--force'])
  t.equal(forced.stdout, 'c2 has left the clusterset; Sealane is removed\n')
  t.comment(`leaving by force without a broker: ${(forced.ms / 1000).toFixed(1)} s`)
  await isBare(t, member, directory)
  await hub.site.api.merge(broker, { spec: { replicas: 1 } })
  const evicted = await eventually(
    async () => {
      const done = await trySealane(['cluster', 'evict', 'c2', ...hub.at])
      return done.code === 0 ? done : undefined
    },
    { deadlineMs: 60_000, intervalMs: 1000, say: 'the broker is back' },
  )
  t.equal(evicted.stdout, 'cluster c2 evicted: its records are withdrawn and its certificate is revoked\n')
}

async function uninstalling(t: Test, world: World): Promise<void> {
  const { hub, member, directory } = world
  await eventually(() => joinAgain(world, member), { deadlineMs: 60_000, intervalMs: 1000 })
  await answered(world)
  const there = await sealane(['uninstall', '--yes', ...member.at, '--crds'])
  t.equal(there.stdout, 'c2 has left the clusterset; the CRDs were removed\n')
  await isBare(t, member, directory, 'gone')
  await sealane(['unexport', 'hello', '--namespace', 'demo', ...hub.at])
  const here = await sealane(['uninstall', '--yes', '--delete-data', ...hub.at, '--crds'])
  t.equal(here.stdout, 'c1 has left the clusterset; the broker was removed; the CRDs were removed\n')
  t.comment(`uninstalling: ${[there, here].map((done) => (done.ms / 1000).toFixed(1)).join(', ')} s`)
  await isBare(t, hub, directory, 'gone')
  const nothing = await sealane(['uninstall', '--yes', ...hub.at])
  t.equal(nothing.stdout, 'Sealane was not installed; the CRDs are kept (--crds)\n')
}

/** The text without what differs from run to run, such as waits that depend on how long steps take. */
function masked(text: string, directory: string): string {
  return text
    .split('\n')
    .filter(
      (line) =>
        !/^(waiting for| {2}(agent|gateway|routeagent|dns|to c1|to forward clusterset.local to Sealane)[,:])/.test(
          line,
        ),
    )
    .join('\n')
    .replaceAll(directory, 'FOLDER')
    .replace(/v1\.\d+\.\d+\S*/, (version) => 'VERSION'.padEnd(version.length))
    .replaceAll(/10\.53\.\d+\.\d+/g, (address) =>
      address === '10.53.0.0' || address === '10.53.0.10' ? address : 'DNS',
    )
}
