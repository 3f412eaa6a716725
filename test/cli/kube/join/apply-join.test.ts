/** The objects that a join writes, and the problems that keep it from writing any. */
import t from 'tap'
import {
  type Change,
  applyCrds,
  applyNodes,
  applyObjects,
  crdsMissing,
  describeChange,
  leaveToken,
} from '../../../../cli/installation/apply-objects.ts'
import { type Right, brokerRights, checkRights, memberRights } from '../../../../cli/installation/check-rights.ts'
import { deployBroker } from '../../../../cli/broker/deploy/deploy-broker.ts'
import { planBroker } from '../../../../install/plan-broker.ts'
import { identitySecret, planMember, siteConfigMap } from '../../../../install/plan-member.ts'
import { DEFAULT_VALUES } from '../../../../install/values/install-values.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { failure, messageOf } from '../../../support/failure.ts'
import { secretAccess } from '../../../../compose/site/secret-access.ts'
import { joinProblem, secretIdentity } from '../../../../protocol/membership/secret-identity.ts'
import { ALL_CRDS } from '../../../../install/crds/all-crds.ts'
import type { CustomResourceDefinition } from '../../../../install/crds/custom-resource.ts'
import { CLUSTER, LABEL_CRD_REVISION } from '../../../../install/crds/sealane-crds.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { UserError } from '../../../../runtime/errors.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'

const { signal } = new AbortController()

function asObject(crd: CustomResourceDefinition, change: object = {}): ManifestObject {
  return { ...crd, ...change }
}

/** Returns the output of applyCrds(), or the error that it throws. */
async function crdAccount(admin: MemoryAdmin, dryRun = false): Promise<string> {
  let said = ''
  const report = (change: Change): void => void (said += describeChange(change, dryRun))
  try {
    await applyCrds({ admin, dryRun, signal, report })
    return said
  } catch (error) {
    if (!(error instanceof UserError)) throw error
    return `refused: ${error.message}`
  }
}

t.test('CRDs: missing, there, older, newer, another’s, going', async (t) => {
  const bare = new MemoryAdmin()
  const first = await crdAccount(bare)
  t.equal(first.split('\n').filter((line) => line.endsWith('(it does not exist)')).length, ALL_CRDS.length)
  t.equal(await crdAccount(bare), '', 'the second time there is nothing to do')

  const cluster = (labels: object, more: object = {}): MemoryAdmin => {
    const others = ALL_CRDS.filter((crd) => crd !== CLUSTER).map((crd) => asObject(crd))
    const metadata = { ...CLUSTER.metadata, labels: { ...CLUSTER.metadata.labels, ...labels }, ...more }
    return new MemoryAdmin([...others, asObject(CLUSTER, { metadata })])
  }
  const older = cluster({ [LABEL_CRD_REVISION]: '0' })
  t.equal(
    await crdAccount(older),
    "  changed   CustomResourceDefinition clusters.sealane.io  (the server's is older: revision 0)\n",
  )
  const newer = cluster({ [LABEL_CRD_REVISION]: '999' })
  t.equal(await crdAccount(newer), '', 'a newer one that serves what is needed stays')
  t.strictSame(newer.done, [])
  const other = new MemoryAdmin([
    asObject(CLUSTER, {
      metadata: { name: CLUSTER.metadata.name, labels: { [LABEL_CRD_REVISION]: '999' } },
      spec: { ...CLUSTER.spec, versions: CLUSTER.spec.versions.map((one) => ({ ...one, name: 'v9' })) },
    }),
  ])
  t.equal(
    await crdAccount(other),
    'refused: CRD clusters.sealane.io revision 999 on the server does not serve v1alpha1, and it is newer than this Sealane knows: use a newer Sealane',
  )
  t.strictSame(other.done, [], 'then nothing is written at all')
  const going = cluster({}, { deletionTimestamp: '2026-01-01T00:00:00Z' })
  t.match(
    await crdAccount(going),
    /^refused: CRD clusters\.sealane\.io is being removed, with all its objects: try again/,
  )
})

t.test('a kind can be used once it is established', async (t) => {
  const established = { conditions: [{ type: 'Established', status: 'True' }] }
  const admin = new MemoryAdmin(ALL_CRDS.map((crd) => asObject(crd, crd === CLUSTER ? {} : { status: established })))
  t.strictSame(await crdsMissing(admin, signal), { what: 'clusters.sealane.io' })
  admin.put(asObject(CLUSTER, { status: established }))
  t.strictSame(await crdsMissing(admin, signal), undefined)
})

t.test('a dry run writes nothing and says everything', async (t) => {
  const admin = new MemoryAdmin()
  let said = ''
  const context = {
    admin,
    dryRun: true,
    signal,
    report: (change: Change) => void (said += describeChange(change, true)),
  }
  await applyObjects([{ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a', namespace: 'b' } }], context)
  const annotations = { 'sealane.io/public-port': null }
  await applyNodes([{ node: 'n1', labels: { 'sealane.io/gateway': '0' }, annotations }], context)
  const node = 'Node n1  (sealane.io/gateway=0 sealane.io/public-port-)'
  t.equal(said, `  created   ConfigMap b/a\n  changed   ${node}\n`)
  t.strictSame(admin.done, ['apply ConfigMap b/a (dry)'])
})

t.test('a virtual node that goes during the join does not end it, a gateway does', async (t) => {
  const admin = new MemoryAdmin([{ apiVersion: 'v1', kind: 'Node', metadata: { name: 'v2' } }])
  let said = ''
  const report = (change: Change): void => void (said += describeChange(change, false))
  const context = { admin, dryRun: false, signal, report }
  const labels = { 'sealane.io/virtual-node': 'join' }
  await applyNodes(
    ['v1', 'v2'].map((node) => ({ node, labels, annotations: {} })),
    context,
  )
  t.equal(said, '  changed   Node v2  (sealane.io/virtual-node=join)\n')
  for (const gateway of [
    { labels: { 'sealane.io/gateway': 'true' }, annotations: {} },
    { labels: {}, annotations: { 'sealane.io/public-port': null } },
  ])
    await t.rejects(applyNodes([{ node: 'n1', ...gateway }], context), { code: 'NotFound' })
})

t.test('who may not install is told before anything is written', async (t) => {
  const admin = new MemoryAdmin()
  await checkRights(admin, memberRights('sealane-system'), signal)
  for (const right of ['patch nodes', 'create secrets', 'create daemonsets', 'patch daemonsets'])
    admin.denied.add(right)
  const refused = await failure(checkRights(admin, memberRights('sealane-system'), signal))
  t.equal(
    refused.message,
    'context "c1" of kubeconfig: this user may not patch nodes; create secrets, create and patch daemonsets.apps in namespace sealane-system',
  )
  t.match(refused, { hint: 'use a kubeconfig of a cluster administrator; nothing was changed' })
  t.strictSame(admin.done, [])
})

/** Returns a line such as `create apps deployments in sealane-system` for each applied object. */
function rightsFor(objects: readonly ManifestObject[]): readonly string[] {
  const all = objects.flatMap(({ apiVersion, kind, metadata }) => {
    const resource = `${kind.toLowerCase()}s`.replace(/ys$/, 'ies')
    return ['get', 'create', 'patch'].map(
      (verb) => `${verb} ${groupOf(apiVersion)} ${resource} in ${metadata.namespace ?? ''}`,
    )
  })
  return [...new Set(all)].sort()
}

const textOf = ({ verb, group, resource, namespace = '' }: Right): string =>
  `${verb} ${group} ${resource} in ${namespace}`

t.test('the rights are those that the objects take', (t) => {
  const { member } = DEFAULT_VALUES
  const { namespace } = member
  const parts = planMember({ ...DEFAULT_VALUES, member: { ...member, criticalPodsQuota: true } })
  const secret = identitySecret(namespace, {})
  const objects = [
    ...parts.flatMap((part) => part.objects),
    siteConfigMap(namespace, ''),
    secret,
    ...ALL_CRDS.map((crd) => asObject(crd)),
  ]
  const merged = ['patch  nodes in ', 'patch sealane.io memberships in ']
  t.strictSame(memberRights(namespace).map(textOf).sort(), [...rightsFor(objects), ...merged].sort())
  const broker = planBroker(DEFAULT_VALUES).flatMap((part) => part.objects)
  t.strictSame(brokerRights(DEFAULT_VALUES.broker.namespace).map(textOf).sort(), rightsFor(broker))
  t.end()
})

t.test('a broker takes other rights than a member: those for its own objects', async (t) => {
  const rights = brokerRights('sealane-broker')
  const admin = new MemoryAdmin()
  const own = new Set(rights.map(({ resource }) => resource))
  for (const { verb, resource } of memberRights('sealane-system')) {
    if (!own.has(resource)) admin.denied.add(`${verb} ${resource}`)
  }
  await checkRights(admin, rights, signal)
  admin.denied.add('patch statefulsets').add('patch poddisruptionbudgets')
  const chosen = { advertise: ['192.0.2.1:7443'], image: 'registry.example.org/sealane:1', storageClass: 'fast' }
  const fast = { apiVersion: 'storage.k8s.io/v1', kind: 'StorageClass', metadata: { name: 'fast' } }
  admin.put(fast)
  const init = {
    chosen,
    force: false,
    flags: '--context c1',
    dryRun: false,
    timeoutMs: 1000,
    clock: new FakeClock(),
    signal,
    say: () => undefined,
    report: () => undefined,
  }
  t.equal(
    await messageOf(deployBroker(admin, init)),
    'context "c1" of kubeconfig: this user may not patch statefulsets.apps, patch poddisruptionbudgets.policy in namespace sealane-broker',
  )
  t.strictSame(admin.done, [])
  admin.denied.clear()
  admin.refuses.set('Service sealane-broker/sealane-broker', 'not here')
  t.match(await failure(deployBroker(admin, { ...init, chosen: { ...chosen, serviceType: 'NodePort' } })), {
    reason: 'AdmissionRefuses',
    message:
      /^context "c1" of kubeconfig: the API server refuses 1 of \d+ objects:\n {2}Service sealane-broker\/sealane-broker: not here$/,
  })
  t.notOk(
    admin.done.some((line) => line.startsWith('apply')),
    'nothing is applied where a rule refuses something',
  )
})

const groupOf = (apiVersion: string): string => (apiVersion.includes('/') ? (apiVersion.split('/')[0] ?? '') : '')

t.test('the Secret: texts in, texts out, null removes', async (t) => {
  const admin = new MemoryAdmin()
  const place = {
    namespace: 'sealane-system',
    name: 'sealane-identity',
    type: 'sealane.io/identity',
    labels: { a: 'b' },
  }
  const secret = secretAccess(admin, place, signal)
  t.equal(secret.place, 'Secret sealane-system/sealane-identity')
  t.equal(await secret.read(), undefined)
  await secretIdentity(secret).remove()
  t.strictSame(admin.done, [], 'what is not there is not made to be emptied')
  await leaveToken(secret, 'sealane1.ä\n')
  t.strictSame(await secret.read(), { data: { token: 'sealane1.ä' }, annotations: {} })
  const stored = await admin.get({ apiVersion: 'v1', kind: 'Secret', namespace: place.namespace, name: place.name })
  t.strictSame(
    [stored?.['type'], stored?.metadata.labels, stored?.['data']],
    ['sealane.io/identity', { a: 'b' }, { token: Buffer.from('sealane1.ä').toString('base64') }],
  )
  const store = secretIdentity(secret)
  await store.problem({ text: 'no', refused: 'sealane1.ä' })
  t.strictSame(joinProblem(await secret.read(), ''), { text: 'no', final: true })
  await leaveToken(secret, 'sealane1.ä')
  t.equal(joinProblem(await secret.read(), ''), undefined, 'whoever tries again begins anew')
  t.equal(await store.isRefused('sealane1.ä'), false)
  await secret.change({ data: { token: null } })
  t.strictSame(await secret.read(), { data: {}, annotations: {} })
})
