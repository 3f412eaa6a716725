/** What happens over time: exports come and go, a join is typed twice, and parts die while others call. */
import type { KubeObject } from '../../../test/kube/support/kube-request.ts'
import { dumpDifference, dumpObjects } from '../../../test/kube/support/object-dump.ts'
import { until } from '../../until.ts'
import { type Check, type Member, memberOf } from '../member.ts'
import { joinWords } from '../readme-commands.ts'
import { ownService } from '../shop.ts'
import {
  callText,
  connectionsOf,
  everybodyCallsEverybody,
  expectNoneLost,
  keepCalling,
  ownHost,
  shortened,
  untilStatus,
} from './ask.ts'

const BROKER = '/apis/apps/v1/namespaces/sealane-broker/statefulsets/sealane-broker'
const BROKER_PODS = '/api/v1/namespaces/sealane-broker/pods'
const SYSTEM_PODS = '/api/v1/namespaces/sealane-system/pods'

const unexport: Check = {
  name: 'unexport: NXDOMAIN in the others; export: it answers again',
  async run({ members, commands }) {
    const others = members.filter(({ name }) => name !== 'c1')
    await commands.type(`unexport ${ownService('c1')} --namespace shop --context c1`)
    const gone = await untilStatus(others, ownHost('c1'), 'NXDOMAIN', 20_000)
    await commands.type(`export ${ownService('c1')} --namespace shop --context c1`)
    const back = await untilStatus(others, ownHost('c1'), 'NOERROR', 20_000)
    await until('each to call each', 20_000, () => callsAreAnswered(members))
    return `gone ${Math.round(gone)} ms after the command's end, back ${Math.round(back)} ms after it`
  },
}

function callsAreAnswered(members: readonly Member[]): Promise<true | string> {
  return everybodyCallsEverybody(members).then(
    () => true,
    (error: unknown) => (error as Error).message,
  )
}

/** Cluster DNS may be late for a probe at any time. */
const RESTLESS = /^~ \/apis\/discovery\.k8s\.io\/v1\/endpointslices kube-system\//

const joinTwice: Check = {
  name: 'the same join typed a second time changes nothing',
  async run({ members, commands }) {
    const { api } = memberOf({ members }, 'c1')
    const before = await dumpObjects(api)
    await commands.type(joinWords('c1'))
    const difference = dumpDifference(before, await dumpObjects(api)).filter((line) => !RESTLESS.test(line))
    if (difference.length > 0) throw new Error(`not as before: ${shortened(difference)}`)
    return `${before.size} objects compared`
  },
}

/** Calls to be answered while something is away. */
const CALLS_MEANWHILE = 20

/** Long enough for a packet that was lost to be sent again: a busy machine is nobody's fault. */
const PATIENT_SECONDS = 3

const brokerAway: Check = {
  name: 'the broker is away: calls continue',
  async run({ members, commands }) {
    const [hub, c1, c2] = [memberOf({ members }, 'hub'), memberOf({ members }, 'c1'), memberOf({ members }, 'c2')]
    const calls = await keepCalling(c1, [hub, c2], PATIENT_SECONDS)
    await hub.api.merge(BROKER, { spec: { replicas: 0 } })
    await until('the broker to be away', 30_000, async () => (await hub.api.list(BROKER_PODS)).length === 0)
    const meanwhile = (await calls.answered()) + CALLS_MEANWHILE
    await until('calls without a broker', 30_000, async () => (await calls.answered()) >= meanwhile)
    await hub.api.merge(BROKER, { spec: { replicas: 1 } })
    const began = performance.now()
    await until('all members to be in contact again', 60_000, async () => {
      const listed = await commands.run('cluster list --context hub').then(({ stdout }) => stdout, String)
      return listed.match(/ in contact /g)?.length === members.length ? true : listed
    })
    const back = performance.now() - began
    const text = expectNoneLost('calls from c1 to hub and c2', (await calls.stop()).values())
    return `${text}; all members in contact ${(back / 1000).toFixed(1)} s after it was started again`
  },
}

const apiServerAway: Check = {
  name: 'the API server of c1 is away: its pods call and are called',
  async run({ members }) {
    const [hub, c1, c2] = [memberOf({ members }, 'hub'), memberOf({ members }, 'c1'), memberOf({ members }, 'c2')]
    const [into, out] = await Promise.all([
      keepCalling(hub, [c1, c2], PATIENT_SECONDS),
      keepCalling(c1, [hub, c2], PATIENT_SECONDS),
    ])
    await c1.cluster.plane.kill('kube-apiserver')
    const began = performance.now()
    const meanwhile = (await into.answered()) + CALLS_MEANWHILE
    await until('calls without its API server', 30_000, async () => (await into.answered()) >= meanwhile)
    const away = performance.now() - began
    await c1.cluster.plane.restart('kube-apiserver')
    const reports = [...(await into.stop()).values(), ...(await out.stop()).values()]
    return `away for ${(away / 1000).toFixed(1)} s: ${expectNoneLost('calls meanwhile', reports)}`
  },
}

interface PodObject extends KubeObject {
  readonly spec: { readonly nodeName?: string }
}

/** Between two answers while the pod of the gateway that serves is replaced. */
const LONGEST_GAP_MS = 20_000

const gatewayDies: Check = {
  name: 'the gateway pod of c1 is deleted: calls come back by themselves',
  async run({ members, commands }) {
    const [hub, c1, c2] = [memberOf({ members }, 'hub'), memberOf({ members }, 'c1'), memberOf({ members }, 'c2')]
    const serving = (await connectionsOf({ commands }, 'c1')).find(({ state }) => state === 'up')?.node
    const selector = encodeURIComponent('app.kubernetes.io/component=gateway')
    const path = `${SYSTEM_PODS}?labelSelector=${selector}`
    const before = await c1.api.list<PodObject>(path)
    const old = before.find(({ spec }) => spec.nodeName === serving)
    if (old === undefined) throw new Error(`c1 has no gateway pod on the node that serves: ${serving ?? 'none'}`)
    const calls = await keepCalling(hub, [c1, c2], 1)
    await c1.api.delete(`${SYSTEM_PODS}/${old.metadata.name}`)
    await until('another gateway pod', 60_000, async () => {
      const pods = await c1.api.list(path)
      return pods.length === before.length && pods.every(({ metadata }) => metadata.uid !== old.metadata.uid)
    })
    const enough = (await calls.answered()) + CALLS_MEANWHILE
    await until('calls to be answered again', 60_000, async () => (await calls.answered()) >= enough)
    const reports = await calls.stop()
    const [toC1, toC2] = [reports.get('c1'), reports.get('c2')]
    if (toC1 === undefined || toC2 === undefined) throw new Error('no account of the calls')
    if (toC1.longestGapMs > LONGEST_GAP_MS) throw new Error(`to c1: ${callText([toC1])}`)
    await until('each to call each', 20_000, () => callsAreAnswered(members))
    return `hub to c1: ${callText([toC1])}; hub to c2 meanwhile: ${callText([toC2])}`
  },
}

export const lifeChecks: readonly Check[] = [unexport, joinTwice, brokerAway, apiServerAway, gatewayDies]
