/** Style sheets are for Vite. */
declare module "*.css";
