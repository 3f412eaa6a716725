/** What a site exposes to other members: `sealane join --expose`. */
import { access, constants } from 'node:fs/promises'
import { dirname } from 'node:path'
import { changeSiteExposure } from '../../kubeapi/files/files.ts'
import { type Exposure, exposureOf } from '../../model/access/access.ts'
import { MEMBERSHIP_NAME } from '../../model/model.ts'
import { UserError, messageOf } from '../../runtime/runtime.ts'
import type { OpenSite } from '../context/context.ts'

export interface ExposureInit {
  /** The value of --expose. If undefined, a member keeps what it has, and a new one gets `exports`. */
  readonly chosen: Exposure | undefined
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

export interface StatedExposure {
  /** The site with the settings of the changed file. */
  readonly site: OpenSite
  /** Changes the site file, which stays as it is until then. Does nothing if it says so already. */
  write(): Promise<void>
}

/** Throws UserError if the site file would have to be changed and cannot be written. */
export async function stateExposure(site: OpenSite, { chosen, signal, say }: ExposureInit): Promise<StatedExposure> {
  const { api, config } = site
  if (chosen === undefined || chosen === config.exposure) return { site, write: () => Promise.resolve() }
  const refuse = (cause: unknown): never => {
    const hint = `write exposure: ${chosen} below spec by hand`
    throw new UserError(`cannot change ${config.file}: ${messageOf(cause)}`, { hint, cause })
  }
  await access(dirname(config.file), constants.W_OK).catch(refuse)
  const memberships = api.cache('Membership')
  await memberships.whenSynced(signal)
  const own = memberships.get(MEMBERSHIP_NAME)
  const write = async (): Promise<void> => {
    await changeSiteExposure(config.file, chosen).catch(refuse)
    const before = config.exposure ?? (own === undefined ? '(none)' : exposureOf(own))
    say(`${config.file}: spec.exposure: ${before} -> ${chosen}`)
    if (own !== undefined) say('this counts when "sealane up" restarts')
  }
  return { site: { ...site, config: { ...config, exposure: chosen } }, write }
}
