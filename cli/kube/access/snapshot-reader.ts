/** The hands of cli/discovery on a cluster. */
import type { DynamicClient, DynamicObject } from '../../../kubeapi/kube/dynamic-client.ts'
import type { SnapshotReader } from '../../discovery/snapshot/read-snapshot.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'

/** As much of a DynamicClient as looking takes. */
export type Lookable = Pick<DynamicClient, 'get' | 'list' | 'create' | 'read'>

export function snapshotReader(dynamic: Lookable): SnapshotReader {
  return {
    get: async (apiVersion, kind, name, namespace, signal) => {
      const found = await dynamic.get({ apiVersion, kind, name, namespace }, signal)
      if (found === undefined) throw new ClusterApiError('NotFound', `${kind} ${name} does not exist`)
      return found
    },
    list: async (apiVersion, kind, { namespace, labelSelector, limit, metadataOnly = false }, signal) =>
      dynamic.list(
        {
          metadataOnly,
          apiVersion,
          kind,
          ...(namespace === undefined ? {} : { namespace }),
          ...(labelSelector === undefined ? {} : { labelSelector }),
          ...(limit === undefined ? {} : { most: limit }),
        },
        signal,
      ),
    dryRunCreate: (object, signal) => dynamic.create(object as DynamicObject, { dryRun: true }, signal),
    version: (signal) => dynamic.read('/version', signal),
  }
}
