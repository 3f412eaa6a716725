/**
 * A company requires a label on all of our objects: those that the agent makes while it runs have it, and are accepted.
 */
import type { Test } from 'tap'
import { agentMetrics } from '../../../agent/loop/metrics.ts'
import { MirrorWriter } from '../../../agent/loop/mirror-writer.ts'
import { type KubeObject as ModelObject, type ServiceImport, objectKeyText } from '../../../model/objects.ts'
import { openKubeSite } from '../../../compose/site/kube-site.ts'
import { AGENT_LEASE, IDENTITY_SECRET, IDENTITY_SECRET_TYPE } from '../../../install/values/names.ts'
import { OBJECT_MARKS } from '../../../install/values/marks.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { importObject, sliceObject } from '../../support/objects/service-objects.ts'
import type { KubeRequest } from '../support/kube-request.ts'
import { refusedWithin } from '../support/refusals.ts'

const SYSTEM = 'sealane-system'
const ACCOUNTS = `system:serviceaccount:${SYSTEM}:`
const RULES = '/apis/admissionregistration.k8s.io/v1'
const NAME = 'owner'
const IMPORT = '/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports/web'
const SLICE = '/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web-roma-1'
const LEASE = `/apis/coordination.k8s.io/v1/namespaces/${SYSTEM}/leases/${AGENT_LEASE}`
const SECRET = `/api/v1/namespaces/${SYSTEM}/secrets/${IDENTITY_SECRET}`
const EVENTS = '/apis/events.k8s.io/v1/namespaces/shop/events'

export interface DemandedLabelsInit {
  /** A client with an administrator's rights. */
  readonly api: KubeRequest
  readonly agent: KubeRequest
  /** The kubeconfig of the agent. */
  readonly kubeconfig: string
  /** The path of the Membership, which exists and has no such label. */
  readonly membership: string
}

export async function demandedLabels(t: Test, init: DemandedLabelsInit): Promise<void> {
  const { api, agent } = init
  // The install makes it, and the agent fills it.
  await api.apply(SECRET, {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: IDENTITY_SECRET },
    type: IDENTITY_SECRET_TYPE,
  })
  const labels = { 'app.kubernetes.io/managed-by': 'sealane' }
  const web = importObject({ name: 'web', namespace: 'shop', labels })
  await demand(api)
  try {
    await objectsArrive(t, init, web)
  } finally {
    await demandNoMore(api)
  }
  // The API server notices the policy a moment later.
  const isTaken = (): Promise<boolean> =>
    agent.apply(`${IMPORT}?dryRun=All`, web).then(
      () => true,
      () => false,
    )
  await eventually(isTaken, { deadlineMs: 60_000, say: 'the label is demanded no more' })
}

async function objectsArrive(t: Test, init: DemandedLabelsInit, web: ServiceImport): Promise<void> {
  const { api, agent, kubeconfig, membership } = init
  const labels = web.metadata.labels ?? {}
  await refusedWithin(60_000)(t, () => agent.apply(`${IMPORT}?dryRun=All`, web), /label owner is missing/, 'without it')

  const { signal } = new AbortController()
  const [clock, logger] = [new SystemClock(), new CapturingLogger()]
  const { api: site, kube } = await openKubeSite(
    { clock, logger, metrics: undefined },
    {
      access: { kubeconfig, namespace: SYSTEM },
      settings: '',
      components: ['agent'],
      signal,
      env: { [OBJECT_MARKS.labels]: `{"${NAME}":"4711"}` },
    },
  )
  t.teardown(() => site.close())
  const writer = new MirrorWriter({ api: site, clock, logger, metrics: agentMetrics(createMetrics('agent')) })
  const mirrored = {
    ...labels,
    'endpointslice.kubernetes.io/managed-by': 'agent.sealane.io',
    'multicluster.kubernetes.io/service-name': 'web',
    'multicluster.kubernetes.io/source-cluster': 'roma',
  }
  const slice = sliceObject({ name: 'web-roma-1', namespace: 'shop', labels: mirrored }, { endpoints: [] })
  const wanted = new Map([web, slice].map((object: ModelObject) => [objectKeyText(object), object]))
  // Other policies see the Membership a moment after it is stored.
  const arrived = async (): Promise<boolean> => {
    const failures = await writer.apply(wanted, signal)
    return failures.length === 0 && (await api.find(IMPORT)) !== undefined && (await api.find(SLICE)) !== undefined
  }
  await eventually(arrived, { deadlineMs: 60_000, say: 'imports arrive' })
  site.report({
    regarding: { kind: 'ServiceImport', name: 'web', namespace: 'shop' },
    type: 'Warning',
    reason: 'NoLane',
    note: 'of this test',
  })
  const lease = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name: AGENT_LEASE } } as const
  await kube.leases.write({ ...lease, spec: { holderIdentity: 'x' } }, signal)
  await kube.identity.key()
  t.equal(await kube.hasMembership(signal), true)
  for (const path of [IMPORT, SLICE, LEASE, SECRET, membership]) {
    t.equal((await api.get(path)).metadata.labels?.[NAME], '4711', path)
  }
  const reported = async (): Promise<boolean> =>
    (await api.list(EVENTS)).some(({ metadata, ...event }) => {
      return event['note'] === 'of this test' && metadata.labels?.[NAME] === '4711'
    })
  await eventually(reported, { deadlineMs: 30_000, say: 'the Event has it' })

  for (const path of [IMPORT, SLICE, LEASE, SECRET]) await api.delete(path)
}

async function demandNoMore(api: KubeRequest): Promise<void> {
  await api.delete(`${RULES}/validatingadmissionpolicybindings/${NAME}`)
  await api.delete(`${RULES}/validatingadmissionpolicies/${NAME}`)
}

async function demand(api: KubeRequest): Promise<void> {
  const apiVersion = 'admissionregistration.k8s.io/v1'
  const rule = { apiGroups: ['*'], apiVersions: ['*'], resources: ['*'], operations: ['CREATE', 'UPDATE'] }
  await api.apply(`${RULES}/validatingadmissionpolicies/${NAME}`, {
    apiVersion,
    kind: 'ValidatingAdmissionPolicy',
    metadata: { name: NAME },
    spec: {
      matchConstraints: { resourceRules: [rule] },
      // The rule leaves out the cluster's own controllers.
      matchConditions: [{ name: 'sealane', expression: `request.userInfo.username.startsWith('${ACCOUNTS}')` }],
      validations: [
        {
          expression: `has(object.metadata.labels) && '${NAME}' in object.metadata.labels`,
          message: `label ${NAME} is missing`,
        },
      ],
    },
  })
  await api.apply(`${RULES}/validatingadmissionpolicybindings/${NAME}`, {
    apiVersion,
    kind: 'ValidatingAdmissionPolicyBinding',
    metadata: { name: NAME },
    spec: { policyName: NAME, validationActions: ['Deny'] },
  })
}
