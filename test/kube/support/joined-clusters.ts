/** Clusters that a user has joined: broker on the first, everything by the command line. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SYSTEM_NAMESPACE } from '../../../model/spec-constants.ts'
import type { Site } from './callers.ts'
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
  /** With the token that they have joined with, in the file `token`. */
  readonly directory: string
  /** The clusters as callers see them, in the same order. */
  readonly sites: readonly Site[]
  /** One kubeconfig file for all, with a context for each by its name. */
  readonly kubeconfig: string
}

export interface JoinedClustersInit extends TestClustersInit {
  /** Called with what is done, one line each. */
  readonly say?: Say
  /** Of every join. */
  readonly joinFlags?: readonly string[]
}

export type Say = (line: string) => void

/** Throws with what the command line said, and leaves nothing behind. */
export async function startJoinedClusters(init: JoinedClustersInit): Promise<JoinedClusters> {
  const { directory, rows, say = () => undefined, joinFlags = [] } = init
  say(`starting ${rows.map(({ name }) => name).join(' and ')}`)
  const world = await startClusters({ directory, rows })
  try {
    await joinClusters(world, directory, say, joinFlags)
    const sites = world.clusters.map(({ row, plane }) => ({
      name: row.name,
      api: plane.api,
      kubeconfig: plane.kubeconfig,
    }))
    const parts = sites.map(({ name, kubeconfig }) => ({ context: name, path: kubeconfig }))
    return { ...world, directory, sites, kubeconfig: mergeKubeconfigs(join(directory, 'kubeconfig'), parts) }
  } catch (error) {
    await world.stop()
    throw error
  }
}

/**
 * What a user does on clusters that are there: a broker on the first, a token, a join for each, with these flags
 * besides, which may be other ones for each cluster. The first one joins first, so that its number is the same each
 * time; then all others at once.
 */
export async function joinClusters(
  { clusters }: TestClusters,
  directory: string,
  say: Say,
  joinFlags: readonly string[] | ((cluster: string) => readonly string[]) = [],
): Promise<void> {
  const flagsOf = typeof joinFlags === 'function' ? joinFlags : () => joinFlags
  const [hub, ...others] = clusters
  if (hub === undefined) throw new Error('there is no cluster for the broker')
  await deployBroker(hub, ['--service-type', 'NodePort'], say)
  const tokenFile = await createToken(hub, directory, clusters.length)
  const joinOne = (cluster: TestCluster): Promise<void> =>
    joinCluster(cluster, tokenFile, say, flagsOf(cluster.row.name))
  await joinOne(hub)
  await Promise.all(others.map(joinOne))
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
