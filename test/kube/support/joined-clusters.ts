/** Clusters that a user has joined: broker on the first, everything by the command line. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SYSTEM_NAMESPACE } from '../../../model/spec-constants.ts'
import { mergeKubeconfigs } from './kubeconfig-file.ts'
import { lastWords } from './pod-logs.ts'
import { sealane } from './sealane-command.ts'
import {
  SEALANE_IMAGE,
  type TestCluster,
  type TestClusters,
  type TestClustersInit,
  startClusters,
} from './two-clusters.ts'

export interface JoinedClusters extends TestClusters {
  /** One kubeconfig file for all, with a context for each by its name. */
  readonly kubeconfig: string
}

export interface JoinedClustersInit extends TestClustersInit {
  /** Called with what is done, one line each. */
  readonly say?: Say
}

export type Say = (line: string) => void

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

/**
 * What a user does on clusters that are there: a broker on the first, a token, a join for each, one after the other,
 * with these flags besides, which may be other ones for each cluster.
 */
export async function joinClusters(
  { clusters }: TestClusters,
  directory: string,
  say: Say,
  joinFlags: readonly string[] | ((cluster: string) => readonly string[]) = [],
): Promise<void> {
  const flagsOf = typeof joinFlags === 'function' ? joinFlags : () => joinFlags
  const [hub] = clusters
  if (hub === undefined) throw new Error('there is no cluster for the broker')
  await deployBroker(hub, ['--service-type', 'NodePort'], say)
  const tokenFile = await createToken(hub, directory, clusters.length)
  for (const cluster of clusters) await joinCluster(cluster, tokenFile, say, flagsOf(cluster.row.name))
}

/** `args` say how members reach it. */
export async function deployBroker({ row, plane }: TestCluster, args: readonly string[], say: Say): Promise<void> {
  say(`sealane broker deploy ${args.join(' ')} on ${row.name}`)
  await sealane(['broker', 'deploy', '--kubeconfig', plane.kubeconfig, ...args, '--image', SEALANE_IMAGE])
}

/** A file with a token of the broker there that lets so many join. */
export async function createToken({ plane }: TestCluster, directory: string, uses: number): Promise<string> {
  const { stdout } = await sealane([
    'token',
    'create',
    '--kubeconfig',
    plane.kubeconfig,
    '--uses',
    String(uses),
    '-o',
    'json',
  ])
  const tokenFile = join(directory, 'token')
  writeFileSync(tokenFile, (JSON.parse(stdout) as { token: string }).token, { mode: 0o600 })
  return tokenFile
}

export async function joinCluster(
  { row, plane }: TestCluster,
  tokenFile: string,
  say: Say,
  flags: readonly string[] = [],
): Promise<void> {
  say(`sealane join on ${row.name}`)
  const pods = row.podCIDR.split(',').flatMap((cidr) => ['--pod-cidr', cidr])
  const at = ['--kubeconfig', plane.kubeconfig, '--cluster-id', row.name, ...pods]
  // Beside two other files of tests the pods have a small part of the machine.
  const words = ['--token-file', tokenFile, '--yes', '--image', SEALANE_IMAGE, '--timeout', '5m', ...flags]
  await sealane(['join', ...at, ...words]).catch(async (error: unknown) => {
    throw new Error(`${String(error)}\n${await lastWords(plane.api, SYSTEM_NAMESPACE).catch(String)}`)
  })
}

export async function leaveClusterset({ row, plane }: TestCluster, say: Say): Promise<void> {
  say(`sealane leave on ${row.name}`)
  await sealane(['leave', '--kubeconfig', plane.kubeconfig, '--yes'])
}
