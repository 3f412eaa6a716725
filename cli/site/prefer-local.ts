/** The default traffic policy of a site: `sealane join --prefer-local` writes it into the folder of objects. */
import { writeUserObject, removeUserObject, UserObjectError } from '../../kubeapi/files/files.ts'
import type { ClusterTrafficPolicy } from '../../model/model.ts'
import {
  PREFER_LOCAL,
  PREFER_LOCAL_REF,
  isFromJoin,
  isPreferLocal,
  planPreferLocal,
  stayingPolicyText,
} from '../cluster/cluster.ts'
import type { OpenSite } from '../context/context.ts'

export interface PreferLocalInit {
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

const TITLE = `ClusterTrafficPolicy ${PREFER_LOCAL_REF.name}`

/** Throws UserObjectError, which names the file, if the policy shares it with other objects. */
export async function preferLocal(site: OpenSite, { signal, say }: PreferLocalInit): Promise<void> {
  const present = await presentPolicy(site, signal)
  const plan = planPreferLocal(present)
  if (!plan.writes) {
    const text = stayingPolicyText(plan.lines)
    if (text !== '') say(text.trimEnd())
    return
  }
  if (present !== undefined) return
  const path = await writeUserObject(site.config.objects, PREFER_LOCAL)
  say(`${path}: ${TITLE}: calls prefer this site, its zone and its region`)
}

/** Whether the site has the policy of an earlier join --prefer-local, as that wrote it. */
export async function hasPreferLocal(site: OpenSite, signal: AbortSignal): Promise<boolean> {
  const present = await presentPolicy(site, signal)
  return present !== undefined && isPreferLocal(present)
}

/**
 * For a site that has left: removes the policy of an earlier join. One that a user has edited, or that shares its file,
 * stays and is named.
 */
export async function removePreferLocal(site: OpenSite, { signal, say }: PreferLocalInit): Promise<void> {
  const present = await presentPolicy(site, signal)
  if (present === undefined || !isFromJoin(present)) return
  if (!isPreferLocal(present)) {
    say(`${TITLE} was edited after the join, and stays`)
    return
  }
  try {
    const { kind, metadata } = PREFER_LOCAL
    const path = removeUserObject(site.config.objects, kind, metadata.name)
    if (path !== undefined) say(`${path} was removed`)
  } catch (error) {
    if (!(error instanceof UserObjectError)) throw error
    say(error.message)
  }
}

async function presentPolicy({ api }: OpenSite, signal: AbortSignal): Promise<ClusterTrafficPolicy | undefined> {
  const policies = api.cache('ClusterTrafficPolicy')
  await policies.whenSynced(signal)
  return policies.get(PREFER_LOCAL_REF.name)
}
