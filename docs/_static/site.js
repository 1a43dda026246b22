// Scrolls the side bar to the page that is read.
addEventListener("DOMContentLoaded", () => {
  const scrolled = document.querySelector(".sidebar-scroll");
  const page = scrolled?.querySelector(".current-page");
  if (page) scrolled.scrollTop = page.offsetTop - scrolled.clientHeight / 2;
});
