/**
 * The labels, annotations and resources of an installation: a later command without flags keeps them, a flag removes
 * them, and new ones apply to existing objects.
 */
import t from 'tap'
import {
  planInstalledMember,
  readInstalledValues,
  readMarks,
} from '../../../../cli/installation/plan-installed-values.ts'
import { installedBroker, keepInstalled } from '../../../../cli/broker/deploy/installed-broker.ts'
import { type MarkOptions, withMarks } from '../../../../cli/installation/values-options.ts'
import { NO_MARKS, decideCrds, markedCrds, planSecretMarks } from '../../../../cli/installation/marks.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { planBroker } from '../../../../install/plan-broker.ts'
import { planMember } from '../../../../install/plan-member.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../../install/values/install-values.ts'
import { refOf, titleOf } from '../../../../kubeapi/kube/kinds.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { appliedBy } from '../../../support/objects/applied-object.ts'
import { cluster, gateway, join, node, secret } from '../join/joining.ts'

const { signal } = new AbortController()
const SITE = 'kind: Site\n'
const OBJECTS = { labels: { team: 'net' }, annotations: { 'example.org/owner': 'net' } }
const PODS = { labels: { scan: 'yes' }, annotations: {} }
const MARKED: InstallValues = {
  ...DEFAULT_VALUES,
  objects: OBJECTS,
  pods: PODS,
  member: { ...DEFAULT_VALUES.member, site: SITE },
}

function live(values: InstallValues, manager = 'sealane'): ReadonlyMap<string, ManifestObject> {
  const objects = planMember(values).flatMap((part) => part.objects)
  return new Map(objects.map((object) => [titleOf(refOf(object)), appliedBy(manager, object)]))
}

/** Returns the objects that a join with these flags would apply. */
function planned(installed: ReadonlyMap<string, ManifestObject>, asked: MarkOptions): readonly ManifestObject[] {
  const read = readInstalledValues(withMarks(DEFAULT_VALUES, asked), asked, installed)
  return planInstalledMember(read, SITE, installed)
}

const labelsOf = (objects: readonly ManifestObject[], key: string): Set<string | undefined> =>
  new Set(objects.map(({ metadata }) => metadata.labels?.[key]))

t.test('the next join without flags keeps them; one with flags changes what it names', (t) => {
  const installed = live(MARKED)
  t.strictSame(readMarks(installed.values()), { objects: OBJECTS, pods: PODS })
  t.strictSame(labelsOf(planned(installed, {}), 'team'), new Set(['net']), 'kept')
  t.strictSame(labelsOf(planned(installed, { objectLabel: [['team', 'web']] }), 'team'), new Set(['web']), 'changed')
  t.strictSame(labelsOf(planned(installed, { objectLabel: [['team', null]] }), 'team'), new Set([undefined]), 'taken')
  const more = planned(installed, { objectLabel: [['cost', '7']] })
  t.strictSame(labelsOf(more, 'cost'), new Set(['7']))
  t.strictSame(labelsOf(more, 'team'), new Set(['net']), 'and the others stay')
  t.end()
})

t.test('monitors follow the other objects, and keep labels of their own', (t) => {
  const podMonitors = { ...DEFAULT_VALUES.metrics.podMonitors, enabled: true, labels: { release: 'prom' } }
  const installed = live({ ...MARKED, metrics: { ...MARKED.metrics, podMonitors } })
  const monitors = (asked: MarkOptions) => planned(installed, asked).filter(({ kind }) => kind === 'PodMonitor')
  t.strictSame(labelsOf(monitors({}), 'team'), new Set(['net']))
  t.strictSame(labelsOf(monitors({ objectLabel: [['team', 'web']] }), 'team'), new Set(['web']))
  t.strictSame(labelsOf(monitors({ objectLabel: [['team', null]] }), 'team'), new Set([undefined]))
  t.strictSame(labelsOf(monitors({ objectLabel: [['team', null]] }), 'release'), new Set(['prom']))
  t.end()
})

t.test('marks of others are theirs', (t) => {
  t.strictSame(readMarks(live(MARKED, 'helm').values()), { objects: NO_MARKS, pods: NO_MARKS })
  t.strictSame(labelsOf(planned(live(MARKED, 'helm'), {}), 'team'), new Set([undefined]))
  t.end()
})

t.test('resources that were asked for count for more than those that are there', (t) => {
  const own = { ...MARKED, agent: { ...MARKED.agent, resources: { requests: { cpu: '7' } } } }
  const read = (asked: MarkOptions) =>
    readInstalledValues(withMarks(DEFAULT_VALUES, asked), asked, live(own)).parts.agent.agent.resources
  t.strictSame(read({}), { requests: { cpu: '7' } }, 'kept')
  t.strictSame(read({ resources: [['agent', { limits: { cpu: '1' } }]] }), { limits: { cpu: '1' } })
  t.strictSame(read({ resources: [['agent', null]] }), DEFAULT_VALUES.agent.resources)
  t.strictSame(read({ resources: [['dns', { limits: { cpu: '1' } }]] }), { requests: { cpu: '7' } })
  t.end()
})

t.test('those of a broker are kept too', async (t) => {
  const objects = planBroker(MARKED).flatMap((part) => part.objects)
  const admin = new MemoryAdmin(objects.map((object) => appliedBy('sealane', object)))
  const kept = keepInstalled(DEFAULT_VALUES, await installedBroker(admin, 'sealane-broker', signal))
  t.strictSame(kept.objects, OBJECTS)
  t.strictSame(kept.pods, PODS)
})

t.test('CRDs of Sealane are written again where their marks differ; those of others are left', async (t) => {
  const crds = (marks: typeof OBJECTS, manager: string): MemoryAdmin =>
    new MemoryAdmin(
      (markedCrds(marks) as readonly unknown[] as readonly ManifestObject[]).map((crd) => appliedBy(manager, crd)),
    )
  const written = async (admin: MemoryAdmin, marks: typeof OBJECTS): Promise<readonly string[]> =>
    (await decideCrds(admin, marks, signal)).flatMap(({ action, name }) => (action === 'leave' ? [] : [name]))
  t.strictSame(await written(crds(OBJECTS, 'sealane'), OBJECTS), [], 'nothing differs')
  const more = await written(crds(NO_MARKS as typeof OBJECTS, 'sealane'), OBJECTS)
  t.ok(more.length > 0 && more.every((name) => name.endsWith('.sealane.io')), more.join())
  t.strictSame(await written(crds(OBJECTS, 'sealane'), NO_MARKS as typeof OBJECTS), more, 'taken away')
  t.strictSame(await written(crds(OBJECTS, 'helm'), NO_MARKS as typeof OBJECTS), [], 'of others')
  t.strictSame(
    await written(new MemoryAdmin(), OBJECTS),
    markedCrds(OBJECTS).map(({ metadata }) => metadata.name),
  )
})

t.test('a Secret that is there gets them one by one', async (t) => {
  const there = secret({ token: 'eA==' })
  const marks = { before: { labels: { old: '1', gone: '2' }, annotations: {} }, wanted: OBJECTS }
  const place = { namespace: 'sealane-system', names: ['sealane-identity', 'missing'], marks }
  const labelled = { ...there, metadata: { ...there.metadata, labels: { old: '1', theirs: '3' } } }
  const [change, ...others] = await planSecretMarks(new MemoryAdmin([labelled]), place, signal)
  t.strictSame(others, [])
  t.strictSame(change?.patch, { labels: { old: null, team: 'net' }, annotations: { 'example.org/owner': 'net' } })
  const done = { ...there, metadata: { ...there.metadata, ...OBJECTS } }
  t.strictSame(await planSecretMarks(new MemoryAdmin([done]), place, signal), [])
})

t.test('a whole join puts them on all that it makes', async (t) => {
  const { admin, outcome } = await join([node('n1', 'True'), cluster('paris'), gateway()], undefined, {
    values: MARKED,
  })
  t.notOk(outcome instanceof Error, 'it went through')
  const identity = await admin.get({
    apiVersion: 'v1',
    kind: 'Secret',
    namespace: 'sealane-system',
    name: 'sealane-identity',
  })
  t.match(identity?.metadata, OBJECTS, 'the Secret')
  const crds = await admin.list('apiextensions.k8s.io/v1', 'CustomResourceDefinition', {})
  t.ok(crds.length > 0)
  for (const crd of crds) t.match(crd.metadata, OBJECTS, crd.metadata.name)
})

t.test('a dry run shows what would be on what is there', async (t) => {
  const there = [node('n1', 'True'), ...live(DEFAULT_VALUES).values(), secret({ token: 'eA==' })]
  const asked: MarkOptions = { objectLabel: [['team', 'net']] }
  const { said, admin } = await join(there, undefined, {
    values: withMarks(DEFAULT_VALUES, asked),
    asked,
    dryRun: true,
  })
  t.match(said, /~ Deployment sealane-system\/sealane-agent\n(.*\n)*? +metadata\.labels\.team: .* -> .*net/)
  t.match(said, /~ Secret sealane-system\/sealane-identity\n +metadata\.labels: .*team/)
  const written = admin.done.filter((line) => !line.endsWith('(dry)') && !line.startsWith('create SelfSubject'))
  t.strictSame(written, [])
})
