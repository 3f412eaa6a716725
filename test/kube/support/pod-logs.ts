/** What the pods of a cluster have said. */
import type { KubeObject, KubeRequest } from './kube-request.ts'

interface Pod extends KubeObject {
  readonly spec: { readonly containers: readonly { readonly name: string }[] }
  readonly status?: { readonly containerStatuses?: readonly { readonly restartCount: number }[] }
}

interface ContainerLog {
  readonly pod: Pod
  readonly status: number
  readonly text: string
}

/** Lines of all containers of a namespace that look as if the API server had refused something, each with its pod. */
export async function refusedByApiServer(api: KubeRequest, namespace: string): Promise<readonly string[]> {
  const logs = await containerLogs(api, namespace)
  return logs.flatMap(({ pod: { metadata }, status, text }) => {
    if (status !== 200) return [`${metadata.name}: no log: ${status} ${text.slice(0, 200)}`]
    const lines = text.split('\n').filter((line) => /forbidden|\b403\b|denied/i.test(line))
    return lines.map((line) => `${metadata.name}: ${line}`)
  })
}

/** Gives what asks for the lines of refusedByApiServer() that came since, with the names of their clusters. */
export async function watchRefusals(
  sites: readonly { readonly name: string; readonly api: KubeRequest }[],
  namespace: string,
): Promise<() => Promise<readonly string[]>> {
  const look = async (): Promise<readonly string[]> => {
    const found = sites.map(async ({ name, api }) => {
      const lines = await refusedByApiServer(api, namespace)
      return lines.map((line) => `${name}: ${line}`)
    })
    return (await Promise.all(found)).flat()
  }
  const before = new Set(await look())
  return async () => (await look()).filter((line) => !before.has(line))
}

/** Of all containers of a namespace: how often their pod was started again, and the last lines that they wrote. */
export async function lastWords(api: KubeRequest, namespace: string, lines = 12): Promise<string> {
  const logs = await containerLogs(api, namespace)
  return logs
    .map(({ pod: { metadata, status }, text }) => {
      const restarts = (status?.containerStatuses ?? []).reduce((sum, { restartCount }) => sum + restartCount, 0)
      return `${metadata.name} (${restarts} restarts):\n${text.trim().split('\n').slice(-lines).join('\n')}`
    })
    .join('\n')
}

async function containerLogs(api: KubeRequest, namespace: string): Promise<readonly ContainerLog[]> {
  const found: ContainerLog[] = []
  for (const pod of await api.list<Pod>(`/api/v1/namespaces/${namespace}/pods`)) {
    for (const { name } of pod.spec.containers) {
      const path = `/api/v1/namespaces/${namespace}/pods/${pod.metadata.name}`
      const log = await api.raw('GET', `${path}/log?container=${name}`)
      // A pod may end between the list and its log; one that is there to stay must have a log.
      if (log.status === 404 && (await isGoing(api, path, pod))) continue
      found.push({ pod, ...log })
    }
  }
  return found
}

/** Whether that very pod is gone or being deleted, whatever has its name now. */
async function isGoing(api: KubeRequest, path: string, { metadata: { uid } }: Pod): Promise<boolean> {
  const now = await api.find(path)
  return now?.metadata.uid !== uid || now?.metadata['deletionTimestamp'] !== undefined
}
