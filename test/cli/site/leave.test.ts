/** A site leaves: the broker records the departure, the nodes clean up, and only then the identity is removed. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type OpenSiteInit, withSite } from '../../../cli/context/open-site.ts'
import { leaveClusterset } from '../../../cli/site/leave.ts'
import { SharedMarks } from '../../../compose/hub/shared-marks.ts'
import { FileApi } from '../../../kubeapi/files/file-api.ts'
import { RemovalMarks } from '../../../kubeapi/files/files.ts'
import type { Kind, KubeObject, Membership } from '../../../model/objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../support/eventually.ts'
import { messageOf } from '../../support/failure.ts'
import { LoopbackBroker } from '../loopback-broker.ts'
import { type CliResult, runCli, startCli } from '../run-cli.ts'
import { SiteFolder } from '../site-folder.ts'

interface Member {
  readonly broker: LoopbackBroker
  readonly site: SiteFolder
  /** The API of the site, as the processes on its nodes use it. */
  readonly api: FileApi
  readonly leave: (...more: string[]) => Promise<CliResult>
}

async function member(t: Test, spec = ''): Promise<Member> {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t, 'paris', spec)
  const token = await broker.token()
  await runCli(['join', '--site', site.file, '--token', token, '--cluster-id', 'paris-2'])
  const init = { objects: site.path('objects'), state: site.path('state') }
  const api = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
  t.teardown(() => api.close())
  return { broker, site, api, leave: (...more) => runCli(['leave', '--yes', '--site', site.file, ...more]) }
}

const gateway: KubeObject = { apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', metadata: { name: 'gw' } }
const routeAgent: KubeObject = { apiVersion: 'sealane.io/v1alpha1', kind: 'RouteAgent', metadata: { name: 'w1' } }
const mirrored: KubeObject = {
  apiVersion: 'multicluster.x-k8s.io/v1beta1',
  kind: 'ServiceImport',
  metadata: { name: 'web', namespace: 'shop' },
  spec: { type: 'ClusterSetIP', ports: [] },
}

const REPORTED = 'the broker has withdrawn all records of this cluster\n'
const CLEAN = 'every node has removed Sealane from its kernel\n'
const LEFT = 'paris-2 has left the clusterset\n'
const HINT = 'run "sealane up" there once: it cleans up and exits; then leave again, or skip the node with --force\n'

t.test('nothing runs any more: nothing stays', async (t) => {
  const { broker, site, api, leave } = await member(t)
  await api.apply(mirrored)
  t.same(await leave(), { code: 0, stdout: LEFT, stderr: REPORTED + CLEAN })
  t.same([site.identity(), site.objects()], [[], []])
  const evicted = await messageOf(broker.tokens((store) => store.evict({ cluster: 'paris-2', force: true })))
  t.equal(
    evicted.replace(/\S+Z(?=;)/, 'TIME'),
    'cluster "paris-2" is not a member: it left at TIME; the clusterset has no members',
  )
  t.same(await leave(), { code: 1, stdout: '', stderr: 'sealane: this site has not joined a clusterset\n' })
})

t.test('the folder may be that of one of several hubs, also while no address of theirs is here', async (t) => {
  const { site, api, leave } = await member(t, '  hub: { listen: ["192.0.2.1:4510", "192.0.2.2:4510"] }\n')
  await api.apply(mirrored)
  t.equal((await leave()).code, 0)
  const marks = new RemovalMarks(site.path('state'))
  t.ok(marks.has(join('objects', 'ServiceImport', 'shop', 'web.json')), 'its hub takes it for no fault of the disk')
  for (const part of ['cluster.key', 'broker.json'])
    t.ok(new SharedMarks(site.path('state')).has(`identity/${part}`), `another hub gives up its ${part}, too`)
  t.same(site.identity(), ['0700 identity/'])
})

t.test('what the agent wrote of the Membership after this command had read it stays', async (t) => {
  const { site, api } = await member(t)
  const init = { signal: new AbortController().signal, logger: new CapturingLogger() } as unknown as OpenSiteInit
  const written: unknown[] = []
  await withSite(site.file, init, async (open) => {
    const memberships = open.api.cache('Membership')
    await memberships.whenSynced(init.signal)
    const before = memberships.get('self')
    if (before === undefined) throw new Error('no Membership')
    await api.apply({ ...before, spec: { ...before.spec, exposure: 'pods' } } satisfies Membership)
    const [cache, apply] = [open.api.cache.bind(open.api), open.api.apply.bind(open.api)]
    // The watch of this process is late.
    const late = { synced: true, get: () => before, list: () => [before], onChange: () => () => undefined }
    open.api.cache = ((kind: Kind) =>
      kind === 'Membership' ? { ...late, whenSynced: () => Promise.resolve() } : cache(kind)) as typeof open.api.cache
    open.api.apply = (object, signal) => {
      if (object.kind === 'Membership') written.push(object.spec)
      return apply(object, signal)
    }
    await leaveClusterset(open, { timeoutMs: 1000, force: false, signal: init.signal, say: () => undefined })
  })
  t.match(written, [{ phase: 'leaving', exposure: 'pods' }])
})

t.test('it waits until every node has cleaned up', async (t) => {
  const { site, api, leave } = await member(t)
  await api.apply(gateway)
  await api.apply(routeAgent)
  const leaving = leave()
  const memberships = api.cache('Membership')
  await eventually(() => memberships.get('self')?.spec.phase === 'leaving')
  t.not(site.identity().length, 0, 'the identity is still there')
  await api.remove('Gateway', 'gw')
  await api.remove('RouteAgent', 'w1')
  t.same(await leaving, { code: 0, stdout: LEFT, stderr: REPORTED + CLEAN })
  t.same([site.identity(), site.objects()], [[], []])
})

t.test('an agent that read the Membership before, and writes it after, takes nothing back', async (t) => {
  const { api, leave } = await member(t)
  await api.apply(gateway)
  const memberships = api.cache('Membership')
  await memberships.whenSynced(new AbortController().signal)
  const before = memberships.get('self')
  if (before === undefined) throw new Error('no Membership')
  const leaving = leave()
  const isLeaving = (exposure: string | undefined): boolean => {
    const spec = memberships.get('self')?.spec
    return spec?.phase === 'leaving' && spec.exposure === exposure
  }
  await eventually(() => isLeaving(before.spec.exposure), { say: 'it leaves' })
  await api.apply({ ...before, spec: { ...before.spec, exposure: 'pods' } } satisfies Membership)
  await eventually(() => isLeaving('pods'), { say: 'it still leaves', deadlineMs: 5000 })
  await api.remove('Gateway', 'gw')
  t.same(await leaving, { code: 0, stdout: LEFT, stderr: REPORTED + CLEAN })
})

t.test('a node that does not clean up in time, and then does', async (t) => {
  const { site, api, leave } = await member(t)
  await api.apply(gateway)
  await api.apply(routeAgent)
  const stuck = await leave('--timeout', '100ms')
  t.same(stuck, {
    code: 1,
    stdout: '',
    stderr: `${REPORTED}sealane: not cleaned up after 100ms: gateway on gw, routeagent on w1\n${HINT}`,
  })
  t.equal((await leave('--timeout', '0s')).code, 1, 'no time at all is no time to hang')
  await api.remove('Gateway', 'gw')
  await api.remove('RouteAgent', 'w1')
  t.same(await leave(), { code: 0, stdout: LEFT, stderr: REPORTED + CLEAN })
  t.same([site.identity(), site.objects()], [[], []])
})

t.test('a node that never comes back', async (t) => {
  const { site, api, leave } = await member(t)
  await api.apply(gateway)
  t.same(await leave('--timeout', '50ms', '--force'), {
    code: 0,
    stdout: LEFT,
    stderr: `${REPORTED}not cleaned up after 50ms: gateway on gw; continuing because of --force\nwhen gw is back, run on it: sealane leave --node gw --site ${site.file}\n`,
  })
  t.same([site.identity(), site.objects()], [[], []])
})

t.test('a broker that never comes back', async (t) => {
  const { broker, site, leave } = await member(t)
  await broker.stop()
  const why = `broker at 127.0.0.1:${broker.port}: connection refused: nothing listens there`
  t.same(await leave(), {
    code: 1,
    stdout: '',
    stderr: `sealane: the leave could not be reported to the broker: ${why}\ntry again, or use --force and evict this cluster on the broker (sealane cluster evict)\n`,
  })
  t.equal(site.identity().length, 5, 'still a member')
  t.same(await leave('--force'), {
    code: 0,
    stdout: LEFT,
    stderr:
      `the leave could not be reported to the broker (${why}); continuing because of --force\n` +
      `paris-2 stays a member until it is evicted; on the broker, run: sealane cluster evict paris-2\n${CLEAN}`,
  })
  t.same([site.identity(), site.objects()], [[], []])
})

t.test('an evicted site may go', async (t) => {
  const { broker, site, leave } = await member(t)
  await broker.tokens((store) => store.evict({ cluster: 'paris-2', force: true }))
  const { code, stderr } = await leave()
  t.equal(code, 0)
  t.equal(
    stderr.replace(/\S+Z(?=:)/, 'TIME'),
    `the broker answered: cluster "paris-2" was evicted at TIME: join again with a new token\n${CLEAN}`,
  )
  t.same([site.identity(), site.objects()], [[], []])
})

t.test('a damaged identity', async (t) => {
  const { site, leave } = await member(t)
  site.write('state/identity/cluster.crt', 'nonsense')
  const why = `${site.path('state/identity/cluster.crt')}: no certificate in PEM form`
  const { code, stderr } = await leave()
  t.equal(code, 1)
  t.equal(
    stderr,
    `sealane: the leave could not be reported to the broker: ${why}\ntry again, or use --force and evict this cluster on the broker (sealane cluster evict)\n`,
  )
  t.same(await leave('--force'), {
    code: 0,
    stdout: LEFT,
    stderr: `the leave cannot be reported to the broker (${why}); continuing because of --force\n${CLEAN}`,
  })
})

t.test('interrupted while it waits', async (t) => {
  const { site, api, leave } = await member(t)
  await api.apply(gateway)
  const running = startCli(['leave', '--yes', '--site', site.file])
  const memberships = api.cache('Membership')
  await eventually(() => memberships.get('self')?.spec.phase === 'leaving')
  running.stop()
  t.same(await running.result, {
    code: 1,
    stdout: '',
    stderr: `${REPORTED}sealane: interrupted before it was complete\n`,
  })
  await api.remove('Gateway', 'gw')
  t.equal((await leave()).code, 0, 'the next one goes on')
})
