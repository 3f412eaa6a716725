/** The public interface of this room, the driver on files: a site without Kubernetes. */
export { FileApi } from './file-api.ts'
export { type FileProblem, formatProblem } from './problem-board.ts'
export { type KubernetesAccess, type SiteConfig, parseSiteFile, readSiteFile } from './site-file.ts'
export { removeUserObject, writeUserObject } from './user/user-objects.ts'
