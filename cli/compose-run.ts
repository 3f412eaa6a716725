/** What a part of a site is started with, and the shape of the modules that start one. */
import type { MemberIdentity } from '../protocol/identity/member-files.ts'
import type { Clock } from '../reconcile/clock.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import type { OpenSite } from './site.ts'

export interface SiteRun extends OpenSite {
  readonly node: string
  readonly identity: MemberIdentity
}

export interface ComponentModule {
  readonly run: (deps: ComponentDeps, site: SiteRun, signal: AbortSignal) => Promise<void>
  /** The text of what would be applied; absent where a part touches no kernel. */
  readonly plan?: (clock: Clock, site: SiteRun, signal: AbortSignal) => Promise<string>
}
