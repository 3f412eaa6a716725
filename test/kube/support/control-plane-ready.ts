/** Waiting for a control plane, but no longer than its programs live. */
import { eventually } from '../../support/eventually.ts'
import type { KubeRequest } from './kube-request.ts'
import type { Program } from './program.ts'

const DEADLINE_MS = 120_000

/** Until the API server says that it is ready, and has read from etcd just now. */
export async function waitUntilReady(api: KubeRequest, programs: readonly Program[]): Promise<void> {
  await waitBeside(programs, 'the API server is ready', async () => {
    const { status, text } = await api.raw('GET', '/readyz', { timeoutMs: 5_000 })
    if (status !== 200) throw new Error(`/readyz says ${status} ${text.slice(0, 500)}`)
    // What /readyz knows of etcd is seconds old; one object is always read from etcd itself.
    return (await api.raw('GET', '/api/v1/namespaces/default', { timeoutMs: 5_000 })).status === 200
  })
}

/** Until Pods can be made in the namespace `default`: the controllers gave it its ServiceAccount. */
export async function waitForDefaultAccount(api: KubeRequest, controllers: Program): Promise<void> {
  const path = '/api/v1/namespaces/default/serviceaccounts/default'
  await waitBeside([controllers], 'the namespace default has its ServiceAccount', () => api.find(path))
}

async function waitBeside<T>(programs: readonly Program[], say: string, check: () => Promise<T>): Promise<void> {
  const dead = (): Program | undefined => programs.find(({ failure }) => failure !== undefined)
  await eventually(async () => (dead() === undefined ? check() : true), {
    deadlineMs: DEADLINE_MS,
    intervalMs: 100,
    say,
  })
  const program = dead()
  if (program === undefined) return
  throw new Error(`${program.name} ${program.failure ?? ''}; its log ends with:\n${program.log().slice(-3000)}`)
}
