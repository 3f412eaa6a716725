/** Everything that happens to the objects of one kind, as the API server sends it. */
import { request } from 'node:https'
import { createInterface } from 'node:readline'
import { type KubeObject, kubeRequest } from './kube-request.ts'
import { readKubeconfig } from './kubeconfig-file.ts'

export interface WatchEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR'
  readonly object: KubeObject
  /** performance.now() when it came. */
  readonly at: number
}

export interface ObjectWatch {
  /** What has come since the start, oldest first; what was there before is not in it. */
  readonly events: readonly WatchEvent[]
  /** Throws when the server had ended the watch: then something may be missing. */
  stop(): void
}

/** `path` of a list, such as /apis/multicluster.x-k8s.io/v1beta1/serviceimports. */
export async function watchObjects(kubeconfig: string, path: string): Promise<ObjectWatch> {
  const connection = readKubeconfig(kubeconfig)
  const { credentials } = connection
  const api = kubeRequest(connection)
  const { metadata } = await api.get<{ metadata: { resourceVersion: string } }>(path)
  api.close()
  const events: WatchEvent[] = []
  let ended: Error | undefined
  const asked = request(new URL(`${path}?watch=true&resourceVersion=${metadata.resourceVersion}`, connection.url), {
    ca: connection.ca,
    ...('token' in credentials
      ? { headers: { authorization: `Bearer ${credentials.token}` } }
      : { cert: credentials.certificate, key: credentials.key }),
  })
  asked.on('error', (error) => (ended ??= error))
  asked.on('response', (response) => {
    response.on('end', () => (ended ??= new Error('the server has ended the watch')))
    const lines = createInterface({ input: response })
    // It reports the response's errors too.
    lines.on('error', (error: Error) => (ended ??= error))
    lines.on('line', (line) => {
      events.push({ ...(JSON.parse(line) as Omit<WatchEvent, 'at'>), at: performance.now() })
    })
  })
  asked.end()
  await new Promise<void>((resolve, reject) => asked.once('response', () => resolve()).once('error', reject))
  return {
    events,
    stop: () => {
      const before = ended
      ended ??= new Error('stopped')
      asked.destroy()
      if (before !== undefined) throw before
    },
  }
}
