/** What a join checks in a cluster with admission rules of its own, before it installs anything. */
import type { Test } from 'tap'
import { adminOf } from '../../../cli/context/cluster-admin.ts'
import { requireAdmission } from '../../../cli/installation/apply-objects.ts'
import { openKubeApi } from '../../../kubeapi/kube/kube-api.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../support/eventually.ts'
import { messageOf } from '../../support/failure.ts'
import { memberObjects } from '../support/installed-objects.ts'
import type { KubeObject, KubeRequest } from '../support/kube-request.ts'

const SYSTEM = 'sealane-system'
const RULES = '/apis/admissionregistration.k8s.io/v1'

/** A rule about workloads, limited to namespaces as companies do: all but those of the platform. */
export async function companyRules(t: Test, api: KubeRequest, kubeconfig: string): Promise<void> {
  const name = 'cost-center'
  const rule = { apiGroups: ['apps'], apiVersions: ['*'], resources: ['*'], operations: ['CREATE', 'UPDATE'] }
  const apiVersion = 'admissionregistration.k8s.io/v1'
  await api.apply(`${RULES}/validatingadmissionpolicies/${name}`, {
    apiVersion,
    kind: 'ValidatingAdmissionPolicy',
    metadata: { name },
    spec: {
      matchConstraints: { resourceRules: [rule] },
      validations: [{ expression: `'${name}' in object.metadata.labels`, message: `label ${name} is missing` }],
    },
  })
  await api.apply(`${RULES}/validatingadmissionpolicybindings/${name}`, {
    apiVersion,
    kind: 'ValidatingAdmissionPolicyBinding',
    metadata: { name },
    spec: { policyName: name, validationActions: ['Deny'] },
  })
  const { signal } = new AbortController()
  const kube = await openKubeApi(
    { clock: new SystemClock(), logger: new CapturingLogger() },
    { kubeconfig, namespace: SYSTEM },
  )
  t.teardown(() => kube.close())
  const admin = adminOf(kube)
  const refused = (objects: readonly KubeObject[], force = false): Promise<string> =>
    messageOf(requireAdmission(admin, objects, { force, signal, say: () => undefined }))
  const wanted = memberObjects()
  const workloads = wanted.filter(({ kind }) => kind === 'Deployment' || kind === 'DaemonSet')
  await eventually(async () => /refuses 4 of/.test(await refused(wanted)), {
    deadlineMs: 30_000,
    say: 'the rule is known',
  })
  const said = await refused(wanted)
  for (const { kind, metadata } of workloads)
    t.match(said, `\n  ${kind} ${SYSTEM}/${metadata.name}: `, `${metadata.name} is named`)
  t.match(said, `label ${name} is missing`)
  t.equal(await refused(wanted, true), '(it did not fail)', 'forced')
  const elsewhere = workloads.map((object) => ({
    ...object,
    metadata: { ...object.metadata, namespace: 'not-there-yet' },
  }))
  t.match(
    await refused(elsewhere),
    /checked in namespace default, because its own does not exist yet/,
    'before there is a namespace',
  )
  const labelled = workloads.map((object) => ({
    ...object,
    metadata: { ...object.metadata, labels: { ...object.metadata.labels, [name]: '4711' } },
  }))
  t.equal(await refused(labelled), '(it did not fail)', 'what follows the rule is taken')
  const unknown = { apiVersion: 'example.org/v1', kind: 'Thing', metadata: { name: 'x', namespace: SYSTEM } }
  t.equal(await refused([unknown]), '(it did not fail)', 'a kind that is not there yet')
  await api.delete(`${RULES}/validatingadmissionpolicybindings/${name}`)
  await api.delete(`${RULES}/validatingadmissionpolicies/${name}`)
}
