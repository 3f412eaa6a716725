/** Clusters that a user has joined: broker on the first, everything by the command line. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { mergeKubeconfigs } from './kubeconfig-file.ts'
import { sealane } from './sealane-command.ts'
import { SEALANE_IMAGE, type TestClusters, type TestClustersInit, startClusters } from './two-clusters.ts'

export interface JoinedClusters extends TestClusters {
  /** One kubeconfig file for all, with a context for each by its name. */
  readonly kubeconfig: string
}

export interface JoinedClustersInit extends TestClustersInit {
  /** Told what is done, one line each. */
  readonly say?: (line: string) => void
}

/** Throws with what the command line said, and leaves nothing behind. */
export async function startJoinedClusters(init: JoinedClustersInit): Promise<JoinedClusters> {
  const { directory, rows, say = () => undefined } = init
  say(`starting ${rows.map(({ name }) => name).join(' and ')}`)
  const world = await startClusters({ directory, rows })
  try {
    await joinClusters(world, directory, say)
    const parts = world.clusters.map(({ row, plane }) => ({ context: row.name, path: plane.kubeconfig }))
    return { ...world, kubeconfig: mergeKubeconfigs(join(directory, 'kubeconfig'), parts) }
  } catch (error) {
    await world.stop()
    throw error
  }
}

/** What a user does on clusters that are there: a broker on the first, a token, a join for each, with these flags besides. */
export async function joinClusters(
  { clusters }: TestClusters,
  directory: string,
  say: (line: string) => void,
  joinFlags: readonly string[] = [],
): Promise<void> {
  const [hub] = clusters
  if (hub === undefined) throw new Error('there is no cluster for the broker')
  const image = ['--image', SEALANE_IMAGE]
  const atHub = ['--kubeconfig', hub.plane.kubeconfig]
  say(`sealane broker deploy on ${hub.row.name}`)
  await sealane(['broker', 'deploy', ...atHub, '--service-type', 'NodePort', ...image])
  const { stdout } = await sealane(['token', 'create', ...atHub, '--uses', String(clusters.length)])
  const tokenFile = join(directory, 'token')
  writeFileSync(tokenFile, stdout.trim().split(' ').at(-1) ?? '', { mode: 0o600 })
  for (const { row, plane } of clusters) {
    say(`sealane join on ${row.name}`)
    const pods = row.podCIDR.split(',').flatMap((cidr) => ['--pod-cidr', cidr])
    const at = ['--kubeconfig', plane.kubeconfig, '--cluster-id', row.name, ...pods]
    await sealane(['join', ...at, '--token-file', tokenFile, '--yes', ...image, ...joinFlags])
  }
}
