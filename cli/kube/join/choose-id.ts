/** Under which id a cluster joins. */
import type { InstallValues } from '../../../install/values.ts'
import { type ClusterId, parseClusterId } from '../../../model/ids.ts'
import { UserError } from '../../../runtime/user-error.ts'
import type { Discovery } from '../../discovery/discover.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { type JoinOptions, idFromName, installedSite } from './plan-join.ts'
import type { InstalledObjects } from './plan-installed-values.ts'

export interface IdWorld {
  readonly discovery: Discovery
  readonly live: InstalledObjects
  readonly values: InstallValues
}

/** What was said; else what an earlier join used; else the context's name. Throws UserError, InvalidNameError. */
export function chooseId(
  chosen: JoinOptions,
  { discovery, live, values }: IdWorld,
  admin: Pick<ClusterAdmin, 'title' | 'contextName'>,
  flags: string,
): ClusterId {
  const earlier = discovery.earlier.clusterId
  if (chosen.clusterId !== undefined) {
    if (earlier !== undefined && earlier !== chosen.clusterId) {
      throw new UserError(`--cluster-id ${chosen.clusterId}: this cluster is a member already, as ${earlier}`, {
        hint: `leave first: sealane leave ${flags}`,
      })
    }
    return chosen.clusterId
  }
  const id = earlier ?? installedSite(values, live)?.name ?? idFromName(admin.contextName)
  if (id === undefined)
    throw new UserError(`no cluster id follows from ${admin.title}: say --cluster-id`, { exitCode: 2 })
  return parseClusterId(id)
}
